// Builds web/dist. File names have no hash: the server sends them with ETags, and a
// change shows as a change of the file.
//
// The JavaScript client is not bundled: its own built files are in dist/client, so that
// other pages can import it from /console/client/index.js.

import fs from 'node:fs';
import path from 'node:path';
import {defineConfig, type Plugin} from 'vite';

const viewer = 'swagger-ui-dist';

/** Writes LICENSES.txt: the licences of the packages whose code is in the built files. */
function licences(): Plugin {
  return {
    name: 'licences',
    generateBundle(_, bundle) {
      const folders = new Set<string>([folder(viewer)]);
      for (const file of Object.values(bundle)) {
        if (file.type !== 'chunk') continue;
        for (const id of file.moduleIds) {
          const match = /^(.*\/node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(id);
          if (match) folders.add(match[1]!);
          if (id.startsWith('\0rolldown/')) folders.add(folder('rolldown'));
          if (id.startsWith('\0vite/')) folders.add(folder('vite'));
        }
      }
      const texts = [...folders].map(dir => {
        const {name, version, license} = JSON.parse(fs.readFileSync(path.join(dir, 'package.json'), 'utf8'));
        const file = fs.readdirSync(dir).find(f => /^licen[cs]e/i.test(f));
        if (!file) throw new Error(`${name} has no licence file`);
        // Of the packages that are in a bundle, the bundle has the licences.
        const files = [
          file,
          ...fs.readdirSync(dir).filter(f => f === 'NOTICE' || f === 'swagger-ui-bundle.js.LICENSE.txt'),
        ];
        const contents = files.map(f => fs.readFileSync(path.join(dir, f), 'utf8').trim());
        return `${name} ${version} (${license})\n\n${contents.join('\n\n')}\n`;
      });
      this.emitFile({type: 'asset', fileName: 'LICENSES.txt', source: texts.sort().join(`\n${'-'.repeat(72)}\n\n`)});
    },
  };
}

/** Copies the built files of the JavaScript client. */
function client(): Plugin {
  return {
    name: 'client',
    generateBundle() {
      const from = path.join(import.meta.dirname, '../client/dist');
      for (const f of fs.readdirSync(from).filter(f => f.endsWith('.js'))) {
        this.emitFile({type: 'asset', fileName: `client/${f}`, source: fs.readFileSync(path.join(from, f))});
      }
    },
  };
}

/** Copies the page of the OpenAPI document, and its viewer. */
function docs(): Plugin {
  return {
    name: 'docs',
    generateBundle() {
      const page = path.join(import.meta.dirname, '../docs');
      for (const f of fs.readdirSync(page)) {
        this.emitFile({type: 'asset', fileName: `docs/${f}`, source: fs.readFileSync(path.join(page, f))});
      }
      for (const [to, from] of [
        ['swagger-ui.js', 'swagger-ui-bundle.js'],
        ['swagger-ui.css', 'swagger-ui.css'],
      ]) {
        const source = fs
          .readFileSync(path.join(folder(viewer), from!), 'utf8')
          .replace(/^(\/\/|\/\*)# sourceMappingURL=.*$/m, '');
        this.emitFile({type: 'asset', fileName: `docs/${to}`, source});
      }
    },
  };
}

/** The folder of an installed package. */
function folder(name: string): string {
  for (let dir = import.meta.dirname; ; dir = path.dirname(dir)) {
    const at = path.join(dir, 'node_modules', name);
    if (fs.existsSync(at)) return at;
    if (dir === path.dirname(dir)) throw new Error(`${name} is not installed`);
  }
}

export default defineConfig({
  base: './',
  plugins: [licences(), client(), docs()],
  build: {
    outDir: '../dist',
    emptyOutDir: true,
    target: 'es2022',
    modulePreload: false,
    assetsInlineLimit: 0, // the page's policy has no data: URLs
    reportCompressedSize: false,
    rolldownOptions: {
      input: {main: 'index.html'},
      external: '@millrace/client',
      output: {
        paths: {'@millrace/client': './client/index.js'},
        entryFileNames: '[name].js',
        chunkFileNames: '[name].js',
        assetFileNames: '[name][extname]',
      },
    },
  },
  oxc: {jsx: {runtime: 'automatic', importSource: 'preact'}},
});
