export const NodesPage = (): null => null;
