import { delimiters, type Marker } from './markers.ts';

/** `text` as one word for bash, taken literally. */
export function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** The same in one line, whatever is in it. */
function quoteInLine(text: string): string {
  return `$'${text.replace(/[\\']/g, '\\$&').replaceAll('\n', '\\n')}'`;
}

/** As a format of bash's printf. */
function format(text: string): string {
  return text.replaceAll('\x01', '\\001').replaceAll('\x02', '\\002');
}

/**
 * Commands that report to the terminal itself. Builtins only, so called that neither functions nor aliases take their
 * places, and run where no output of theirs or of a trap is seen.
 * `call` and `status` are words for bash. What would see or change the next of our commands (traces, traps on every
 * command, aliases) is told of and put off: {@link restoring} and {@link typedLine} put it on again.
 */
function report(secret: string, call: string | number, status: string): string {
  const { begin, middle, end } = delimiters(secret);
  return (
    `\\builtin printf '${format(begin)}done:%s:%s:%s:%s;%s${format(middle)}' ${call} ${status} "$-" "\${BASHOPTS-}" "\${PWD-}" >/dev/tty; ` +
    `\\builtin trap -p ERR RETURN DEBUG >/dev/tty; \\builtin printf '${format(end)}' >/dev/tty; ` +
    '\\builtin trap - ERR RETURN DEBUG; \\builtin set +vx; \\builtin shopt -u expand_aliases'
  );
}

/**
 * What a shell reads first. What it defines works under `exec >/dev/null`, `set -eu` and the like, shows up in no
 * trace, and is defined again after every command. An end of input that came too late for the program it was for
 * does not end the shell (IGNOREEOF); a shell that cannot be so any more does. `home`: where it is if `cwd` is gone.
 */
export function rcFile(secret: string, cwd: string, home: string): string {
  const { begin, middle, end } = delimiters(secret);
  const prompt =
    '{ __rollout_status=$?; \\builtin [ "$__rollout_told" = "$__rollout_call" ] || { ' +
    `${report(secret, '"$__rollout_call"', '"$__rollout_status"')}; __rollout_told=$__rollout_call; ` +
    '__rollout_reset; }; } >/dev/null 2>&1';
  return `
stty -echo -onlcr 2>/dev/null
set +o history +o histexpand
shopt -u checkwinsize
unset HISTFILE MAILCHECK TMOUT
cd -- ${quote(cwd)} 2>/dev/null || cd -- ${quote(home)} 2>/dev/null
__rollout_call=0 __rollout_told=
__rollout_reset() {
  builtin unset PROMPT_COMMAND PS0 PS1 PS2 IGNOREEOF && builtin enable . : [ enable printf return set shopt trap ||
    builtin kill -KILL $$
  PS0= PS1= PS2= IGNOREEOF=9 PROMPT_COMMAND=${quote(prompt)}
  # After a syntax error in one, bash takes the next for wrong, too.
  builtin eval '[[ 1 ]]' || :
}
__rollout_begin() {
  builtin printf '${format(begin)}begin:%s:0::;${format(middle + end)}' "$1" >/dev/tty || builtin kill -KILL $$
  __rollout_call=$1
  builtin return "$2"
}
__rollout_reset
__rollout_exit() {
  builtin printf '${format(begin)}exit:%s:%s::;%s${format(middle + end)}' "$__rollout_call" "$1" "\${PWD-}" >/dev/tty
}
readonly -f __rollout_reset __rollout_begin __rollout_exit
trap '{ __rollout_exit "$?"; } >/dev/null 2>&1' EXIT
`;
}

/**
 * The line typed to run the command in `file` as number `call`, after the one of which `ready` tells, whose status is
 * `$?` then. Nothing to read from: stdin is empty.
 */
export function typedLine(secret: string, call: number, ready: Marker | null, file: string): string {
  const aliases = ready?.aliases ? '\\builtin shopt -s expand_aliases; ' : '';
  const before = `{ ${aliases}__rollout_begin ${call} ${ready?.status ?? 0} && :; } >/dev/null 2>&1`;
  const after = `{ ${report(secret, call, '"$?"')}; __rollout_told=${call}; __rollout_reset; } >/dev/null 2>&1`;
  return `${before}; \\builtin . ${quote(file)} </dev/null; ${after}\n`;
}

/**
 * What comes first in a command's file, in the line of the command's first, to have again what {@link report} put off.
 * With \`set -v\`, which prints lines as they are read, in a line of its own.
 */
export function restoring({ options, traps, status }: Marker): string {
  const verbose = options.includes('v');
  const traced = options.includes('x');
  if (!verbose && !traced && traps.size === 0) return '';
  const again = [...traps].map(
    // As bash quotes it; on one line, so that lines keep their numbers.
    ([name, action]) => `\\builtin trap -- ${quoteInLine(action.replaceAll("'\\''", "'"))} ${name}; `,
  );
  const on = `{ \\builtin set ${verbose ? '-v' : ''} ${traced ? '-x' : ''}; } 2>/dev/null; `;
  const end = verbose ? '\n' : '';
  return `${verbose || traced ? on : ''}{ ${again.join('')}(\\builtin exit ${status}) && :; } >/dev/null 2>&1; ${end}`;
}
