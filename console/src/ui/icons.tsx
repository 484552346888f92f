// Icons of the navigation: strokes only, so that they take the colour of their text.
import type { JSX } from 'preact';

const draw = (path: string): JSX.Element => (
  <svg viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
    <path d={path} />
  </svg>
);

export const icons: Record<string, JSX.Element> = {
  overview: draw('M3 13h8V3H3zM13 21h8V11h-8zM13 3v5h8V3zM3 21h8v-5H3z'),
  jobs: draw('M4 6h16M4 12h16M4 18h10'),
  queues: draw('M4 5h6v14H4zM14 5h6v6h-6zM14 15h6v4h-6z'),
  nodes: draw('M4 4h16v7H4zM4 13h16v7H4zM8 7.500h.01M8 16.500h.01'),
  volumes: draw('M4 6c0-1.700 3.600-3 8-3s8 1.300 8 3-3.600 3-8 3-8-1.300-8-3zM4 6v12c0 1.700 3.600 3 8 3s8-1.300 8-3V6M4 12c0 1.700 3.600 3 8 3s8-1.300 8-3'),
  images: draw('M12 3 3 7.500v9L12 21l9-4.500v-9zM3 7.500 12 12l9-4.500M12 12v9'),
  history: draw('M3 12a9 9 0 1 0 3-6.700M3 4v4h4M12 8v4l3 2'),
};
