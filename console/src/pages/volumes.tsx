export const VolumesPage = (): null => null;
