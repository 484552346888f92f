import { render } from 'preact';
import { App } from './app';
import { listenToKeys } from './keyboard';
import './style/theme.css';
import './style/base.css';
import './style/shell.css';
import { applyTheme } from './theme';

applyTheme();
listenToKeys();
render(<App />, document.getElementById('app') as HTMLElement);
