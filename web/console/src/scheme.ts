// The colours in force, for what is drawn on a canvas.

import {useEffect, useState} from 'preact/hooks';

/** The value of a colour of the style sheet at an element. */
export function colour(at: HTMLElement, property: string): string {
  const probe = at.appendChild(document.createElement('i'));
  probe.style.color = `var(${property})`;
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

/** Changes when the page becomes light or dark. */
export function useScheme(): string {
  const system = matchMedia('(prefers-color-scheme: dark)');
  const now = () => document.documentElement.dataset.theme || (system.matches ? 'dark' : 'light');
  const [scheme, setScheme] = useState(now);
  useEffect(() => {
    const changed = () => setScheme(now());
    const chosen = new MutationObserver(changed);
    chosen.observe(document.documentElement, {attributeFilter: ['data-theme']});
    system.addEventListener('change', changed);
    return () => {
      chosen.disconnect();
      system.removeEventListener('change', changed);
    };
  }, []);
  return scheme;
}
