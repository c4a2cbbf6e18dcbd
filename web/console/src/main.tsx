// The page: its views by the address, and what all of them share.

import './style.css';
import {render} from 'preact';
import {useEffect, useState} from 'preact/hooks';
import {Events} from './events';
import {Live} from './live/live';
import {Metrics} from './metrics';
import {Models} from './models';
import {Login, User, useWho} from './session';
import {begin} from './status';
import {Streams} from './streams';
import {Tasks} from './tasks';
import {Traces} from './traces';

const VIEWS = {
  live: 'Live',
  streams: 'Streams',
  events: 'Events',
  models: 'Models',
  tasks: 'Tasks',
  traces: 'Traces',
  metrics: 'Metrics',
};

type View = keyof typeof VIEWS;

/**
 * An address: #/VIEW?KEY=VALUE&... . Without a view it is of Live, so that
 * #model=motion&source=clip still works.
 */
function place(): {view: View; query: URLSearchParams} {
  const [, name = 'live', query = ''] = /^#\/(\w*)\??(.*)$/.exec(location.hash) ?? ['', 'live', location.hash.slice(1)];
  return {view: name in VIEWS ? (name as View) : 'live', query: new URLSearchParams(query)};
}

const THEMES = {'': 'system', light: 'light', dark: 'dark'} as const;

type Theme = keyof typeof THEMES;

function Themes() {
  const [theme, setTheme] = useState<Theme>(() => {
    const kept = localStorage.getItem('theme') ?? '';
    return kept in THEMES ? (kept as Theme) : '';
  });
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem('theme', theme);
  }, [theme]);
  return (
    <label>
      <span class="hidden">Colours</span>
      <select id="theme" value={theme} onChange={e => setTheme(e.currentTarget.value as Theme)}>
        {Object.entries(THEMES).map(([value, label]) => (
          <option key={value} value={value}>
            {label}
          </option>
        ))}
      </select>
    </label>
  );
}

function Page() {
  const [at, setAt] = useState(place);
  const {who, setName} = useWho();
  const inside = who && (!who.guarded || who.name !== undefined);
  useEffect(() => {
    const changed = () => setAt(place());
    window.addEventListener('hashchange', changed);
    return () => window.removeEventListener('hashchange', changed);
  }, []);
  useEffect(() => {
    if (inside) begin();
  }, [inside]);
  useEffect(() => {
    document.title = `${VIEWS[at.view]} – Millrace console`;
  }, [at.view]);
  return (
    <>
      <header>
        <h1>Millrace</h1>
        <nav aria-label="Views">
          {(Object.keys(VIEWS) as View[]).map(v => (
            <a key={v} href={`#/${v}`} aria-current={v === at.view ? 'page' : undefined}>
              {VIEWS[v]}
            </a>
          ))}
        </nav>
        {who?.name !== undefined && <User name={who.name} />}
        <Themes />
      </header>
      {who && !inside && <Login done={setName} />}
      {inside && (
        <>
          {/* Live goes on while another view is open. */}
          <Live query={at.query} hidden={at.view !== 'live'} />
          {at.view === 'streams' && <Streams />}
          {at.view === 'events' && <Events query={at.query} />}
          {at.view === 'models' && <Models />}
          {at.view === 'tasks' && <Tasks query={at.query} />}
          {at.view === 'traces' && <Traces query={at.query} />}
          {at.view === 'metrics' && <Metrics />}
        </>
      )}
    </>
  );
}

const root = document.createElement('div');
document.body.append(root);
render(<Page />, root);
