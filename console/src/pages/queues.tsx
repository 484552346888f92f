export const QueuesPage = (): null => null;
