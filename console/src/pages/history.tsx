export const HistoryPage = (): null => null;
