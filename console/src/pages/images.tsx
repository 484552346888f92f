export const ImagesPage = (): null => null;
