// The panel of measurements beside the picture.

const $ = id => document.getElementById(id);
const number = (v, digits = 0) => Number.isFinite(v) ? v.toFixed(digits) : '–';

/**
 * Shows the measurements of a stream.
 * @param {import('./stream.js').Stream} stream
 * @param {import('./stats.js').Stats} stats
 * @param {number} skipped frames that were not encoded
 */
export function show(stream, stats, skipped) {
  const now = stats.now();
  $('fps').textContent = number(now.fps, 1);
  $('rate').textContent = number(now.bytes / 1000);
  $('age').textContent = number(now.age);
  $('age95').textContent = number(now.age95);
  for (const key of ['rest', 'queue', 'prepare', 'run']) $('t-' + key).textContent = number(now[key], 1);
  const reasons = Object.entries(stream.dropped);
  $('dropped').textContent = reasons.reduce((sum, [, n]) => sum + n, 0);
  rows($('counts'), [
    ['sent', stream.sent],
    ...(stream.size ? [['size advised by the server', `${stream.size.width} × ${stream.size.height}`]] : []),
    ['answered', stream.answered],
    ...reasons.map(([reason, n]) => [`dropped: ${reason}`, n]),
    ['errors', stream.errors],
    ['skipped before encoding', skipped],
  ]);
}

function rows(table, list) {
  table.replaceChildren(...list.map(([name, n]) => {
    const row = document.createElement('tr');
    const head = row.appendChild(document.createElement('th'));
    head.scope = 'row';
    head.textContent = name;
    row.insertCell().textContent = n;
    return row;
  }));
}
