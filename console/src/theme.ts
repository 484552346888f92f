// Dark or light: the system's choice, or the user's own. A theme is no secret, so it may be stored.
export type Theme = 'system' | 'light' | 'dark';

const KEY = 'torchyard-console-theme';
const system = matchMedia('(prefers-color-scheme: dark)');

export function chosenTheme(): Theme {
  try {
    const stored = localStorage.getItem(KEY);
    return stored === 'light' || stored === 'dark' ? stored : 'system';
  } catch {
    return 'system'; // storage is blocked
  }
}

export const isDark = (): boolean => (chosenTheme() === 'system' ? system.matches : chosenTheme() === 'dark');

export function applyTheme(): void {
  const theme = chosenTheme();
  const root = document.documentElement;
  if (theme === 'system') delete root.dataset['theme'];
  else root.dataset['theme'] = theme;
  root.toggleAttribute('data-dark', isDark());
  window.dispatchEvent(new Event('themechange'));
}

export function setTheme(theme: Theme): void {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // it lasts until the page is closed
  }
  applyTheme();
}

system.addEventListener('change', applyTheme);
