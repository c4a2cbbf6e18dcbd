import {defineConfig} from 'vite';

// index.js for pages and Node, and the modules that it starts in threads of their own.
export default defineConfig({
  publicDir: false,
  build: {
    target: 'es2022',
    minify: 'oxc',
    modulePreload: false,
    lib: {entry: {index: 'src/index.ts', worker: 'src/worker.ts', pcm: 'src/pcm.ts'}, formats: ['es']},
  },
});
