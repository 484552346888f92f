// Writes objects as YAML, for people to read and change. The server reads it; nothing here parses YAML.
import type { Json } from '../api/objects';

const PLAIN = /^[A-Za-z_/.$][\w\-./$@+ ]*$/;
const SPECIAL = /^(?:y|n|yes|no|true|false|on|off|null|nan|\.nan|[-+]?\.?inf|~)$/i;

function scalar(value: string | number | boolean | null): string {
  if (typeof value !== 'string') return String(value);
  if (PLAIN.test(value) && !SPECIAL.test(value) && !/^\.\d/.test(value) && !value.endsWith(' ')) return value;
  return JSON.stringify(value).replace(UNSAFE, escaped); // JSON strings are YAML strings, but for these characters
}

// Control characters, and line breaks that YAML has and JSON does not.
const UNSAFE = /[\u007f-\u009f\u2028\u2029\ufeff]/g;
const escaped = (character: string): string => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;

// eslint-disable-next-line no-control-regex
const UNPRINTABLE = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u2028\u2029\ufeff]/;
const isBlock = (text: string): boolean => text.includes('\n') && !/[^\S\n]\n|^\s/.test(text) && !UNPRINTABLE.test(text) && /[\x20-\x7e]/.test(text);

function block(text: string, indent: string): string {
  const chomp = text.endsWith('\n\n') ? '+' : text.endsWith('\n') ? '' : '-';
  const lines = text.replace(/\n$/, '').split('\n');
  return `|${chomp}\n${lines.map((line) => (line ? indent + line : '')).join('\n')}`;
}

function write(value: Json, indent: string): string {
  if (Array.isArray(value)) {
    if (!value.length) return '[]';
    return value.map((item) => `\n${indent}- ${item !== null && typeof item === 'object' ? write(item, `${indent}  `).trimStart() : leaf(item, `${indent}  `)}`).join('');
  }
  if (value !== null && typeof value === 'object') {
    const entries = Object.entries(value).filter(([, item]) => item !== undefined);
    if (!entries.length) return '{}';
    return entries.map(([key, item]) => `\n${indent}${scalar(key)}:${nested(item, indent)}`).join('');
  }
  return leaf(value, indent);
}

const leaf = (value: string | number | boolean | null, indent: string): string =>
  typeof value === 'string' && isBlock(value) ? block(value, indent) : scalar(value);

function nested(item: Json, indent: string): string {
  const isEmpty = item !== null && typeof item === 'object' && Object.keys(item).length === 0;
  if (item === null || typeof item !== 'object' || isEmpty) return ` ${isEmpty ? write(item, '') : leaf(item as string, `${indent}  `)}`;
  return write(item, Array.isArray(item) ? indent : `${indent}  `);
}

export const toYaml = (value: Json): string => `${write(value, '').trimStart()}\n`;
