import { defineConfig } from 'vitest/config';

// Relative URLs: the pages work below any prefix. No inlined assets and no module preload helper: the server's
// Content-Security-Policy allows neither inline scripts nor inline styles.
export default defineConfig({
  base: './',
  build: {
    outDir: '../src/torchyard/console/static',
    emptyOutDir: true,
    target: 'es2022',
    assetsInlineLimit: 0,
    modulePreload: false,
    sourcemap: false,
  },
  test: { environment: 'node', include: ['test/**/*.test.ts'] },
});
