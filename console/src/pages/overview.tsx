export const OverviewPage = (): null => null;
