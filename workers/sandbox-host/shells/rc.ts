/** `text` as one word for bash, taken literally. */
export function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/**
 * What a shell reads first. Its functions report with builtins only, write to the terminal itself and show
 * up in no trace, so that `exec >/dev/null`, `set -x`, `set -eu` and the like do not disturb them; they give
 * back the status they were given, so that `$?` passes from one command to the next. What commands make of
 * the prompt is undone before it would show.
 */
export function rcFile(secret: string, cwd: string): string {
  return `
stty -echo -onlcr 2>/dev/null
set +o history +o histexpand
shopt -u checkwinsize
unset HISTFILE MAILCHECK TMOUT
cd -- ${quote(cwd)} 2>/dev/null
__rollout_call=0 __rollout_ran=
__rollout_reset() {
  PS0= PS1= PS2= PROMPT_COMMAND='{ __rollout_report prompt "$?"; } 2>/dev/null'
}
__rollout_report() {
  # What has been said needs no second word: each costs a turn through the terminal.
  [[ $1 == prompt && $__rollout_ran == "$__rollout_call" ]] ||
    { builtin printf '\\001${secret}:%s:%s:%s:%s\\002' "$1" "$__rollout_call" "$2" "$PWD" >/dev/tty; } 2>/dev/null
  if [[ $1 == ran ]]; then __rollout_ran=$__rollout_call; fi
  __rollout_reset
  case $- in *e*) builtin return 0 ;; esac
  builtin return "$2"
}
__rollout_begin() {
  set -- "$?" "$1"
  __rollout_call=$2
  { builtin printf '\\001${secret}:begin:%s:0:\\002' "$2" >/dev/tty; } 2>/dev/null
  case $- in *e*) builtin return 0 ;; esac
  builtin return "$1"
}
__rollout_reset
trap '__rollout_report exit "$?"' EXIT
`;
}

/** The line typed to run the command in `file` as number `call`. Nothing to read from: stdin is empty. */
export function typedLine(call: number, file: string): string {
  return `{ __rollout_begin ${call}; } 2>/dev/null; . ${quote(file)} </dev/null; { __rollout_report ran "$?"; } 2>/dev/null\n`;
}
