// What the tabs of a job's page show.
import type { JobData } from './use_job';
import type { Logs } from './use_logs';
import type { SeriesData } from './use_series';

export interface TabData {
  data: JobData;
  logs: Logs;
  series: SeriesData;
}
