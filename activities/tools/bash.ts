import type { ShellResult } from '../../contracts/sandbox.ts';
import type { Tool, ToolOutcome } from './tool.ts';

/** A persistent bash in the sandbox: working directory, variables and background jobs stay. */
export const bash: Tool = {
  spec: {
    name: 'bash',
    description: 'Run a command in a persistent bash shell and see its output.',
    parameters: {
      type: 'object',
      properties: { command: { type: 'string', description: 'The command, of one or many lines.' } },
      required: ['command'],
      additionalProperties: false,
    },
    fence: { language: 'bash', argument: 'command' },
  },

  async run(args, { sandbox, callId, timeoutMs }): Promise<ToolOutcome> {
    const result = await sandbox.shell('bash', {
      callId,
      command: String(args.command),
      timeoutMs,
    });
    return {
      status: result.timedOut ? 'timeout' : result.restarted ? 'restarted' : 'ok',
      exitCode: result.exitCode,
      text: describe(result, timeoutMs),
    };
  },
};

/** Where what is not shown can be found. */
function describeFile({ output: { file, totalBytes } }: ShellResult): string | undefined {
  if (!file) return undefined;
  return file.whole
    ? `[all ${totalBytes} bytes are in ${file.path}]`
    : `[the first ${file.bytes} of ${totalBytes} bytes are in ${file.path}]`;
}

/** What became of a program that wanted to be typed to. */
const INPUT = {
  ended: '[a program asked for input from the terminal: there is none, and it was told so]',
  stopped: '[interrupted: a program waited for input from the terminal, and there is none]',
};

/** What the model is shown: the output, then a line for each thing that is not as usual. */
function describe(result: ShellResult, timeoutMs: number): string {
  const notes = [
    describeFile(result),
    result.timedOut && `[interrupted after ${timeoutMs / 1000} s]`,
    result.input && INPUT[result.input],
    result.limit && `[${result.limit} limit reached]`,
    result.exitCode !== 0 && result.exitCode !== null && `[exit status ${result.exitCode}]`,
    result.restarted && `[the shell was restarted in ${result.cwd}; its variables are gone]`,
  ].filter((note) => typeof note === 'string');
  return [result.output.text.replace(/\n$/, ''), ...notes].filter((part) => part !== '').join('\n');
}
