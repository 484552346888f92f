export const ComparePage = (): null => null;
