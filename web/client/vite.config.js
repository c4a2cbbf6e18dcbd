import {defineConfig} from 'vite';

// index.js, and the modules that it starts in threads of their own.
export default defineConfig({
  publicDir: false,
  build: {
    target: 'es2022',
    modulePreload: false,
    lib: {entry: {index: 'src/index.ts', worker: 'src/worker.ts', pcm: 'src/pcm.ts'}, formats: ['es']},
    rolldownOptions: {output: {minify: true, chunkFileNames: '[name].js'}},
  },
});
