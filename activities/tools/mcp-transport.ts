import type { JSONRPCMessage, RequestId, Transport } from '@modelcontextprotocol/client';
import { z } from 'zod';
import type { ShellResult } from '../../contracts/sandbox.ts';
import type { BoundSandbox } from '../sandbox/bound.ts';
import { answerMark, askInShell, quote } from './in-shell.ts';

/** Milliseconds more until the shell itself is interrupted, when a server has not answered in time. */
const SHELL_MS = 10_000;
/** Messages of the server's own that are answered before the one that is waited for. */
const MOST_MESSAGES = 100;
/** JSON-RPC code that the protocol's own SDKs use for a request that took too long. */
const REQUEST_TIMEOUT = -32_001;

/** What bash says of one exchange: a line of the server's, or why there is none. */
const Exchanged = z.union([
  z.object({ line: z.looseObject({ jsonrpc: z.literal('2.0') }) }),
  z.object({ ended: z.boolean() }),
]);

/** On whose behalf messages are exchanged, and how long that may take. */
export interface Scope {
  readonly callId: string;
  readonly timeoutMs: number;
}

/** How the exchange of a scope ended, if not with the answer; `flood`: among too much else there was none. */
export type ScopeEnd = 'timeout' | 'ended' | 'flood';

/**
 * Messages to and from an MCP server that is a coprocess of a shell in the sandbox. Each exchange is a call of
 * the shell, numbered within its scope: a worker that does a call again is given what was exchanged the first
 * time, and the server is asked nothing twice.
 */
export class ShellTransport implements Transport {
  onmessage?: Transport['onmessage'];
  onclose?: Transport['onclose'];
  onerror?: Transport['onerror'];
  /** How the last scope ended. */
  end: ScopeEnd | null = null;
  /** What the shell threw in the last scope, or showed besides messages. */
  failure: unknown = null;
  noise = '';
  private readonly sandbox: BoundSandbox;
  private readonly shell: string;
  private readonly command: readonly string[];
  private outgoing: JSONRPCMessage[] = [];
  private scope: Scope = { callId: '', timeoutMs: 1 };
  private deadline = 0;
  private exchanges = 0;
  private starts = true;

  constructor(sandbox: BoundSandbox, shell: string, command: readonly string[]) {
    this.sandbox = sandbox;
    this.shell = shell;
    this.command = command;
  }

  /** What follows is done for `scope`. With `starts`, a server that does not run is started. */
  enter(scope: Scope, starts: boolean): void {
    this.scope = scope;
    this.deadline = performance.now() + scope.timeoutMs;
    this.exchanges = 0;
    this.starts = starts;
    this.end = null;
    this.failure = null;
    this.noise = '';
  }

  async start(): Promise<void> {}

  async close(): Promise<void> {
    this.onclose?.();
  }

  /** Notifications and answers go out with the next exchange. */
  async send(message: JSONRPCMessage): Promise<void> {
    if ('method' in message && 'id' in message) {
      // An id that a worker which does the call again gives to the same request.
      const id = `${this.scope.callId}.${this.exchanges}`;
      this.outgoing.push({ ...message, id });
      void this.exchangeUntilAnswered(id, message.id);
    } else {
      this.outgoing.push(message);
    }
  }

  private async exchangeUntilAnswered(id: string, clientsId: RequestId): Promise<void> {
    try {
      for (;;) {
        const message = this.exchanges > MOST_MESSAGES ? 'flood' : await this.exchange();
        if (message === null) continue;
        if (typeof message === 'string') {
          this.end = message;
          if (message !== 'ended') this.outgoing.push(cancellation(id));
          this.reject(clientsId, message);
          return;
        }
        const isAnswer = !('method' in message);
        if (isAnswer && message.id === id) {
          this.onmessage?.({ ...message, id: clientsId });
          return;
        }
        // Answers to what has been given up are dropped.
        if (!isAnswer) this.onmessage?.(message);
        // What the client says to it must be on its way before the next message is waited for.
        await new Promise((resolve) => setImmediate(resolve));
      }
    } catch (error) {
      this.failure = error;
      this.reject(clientsId, 'the sandbox failed');
    }
  }

  private reject(id: RequestId, message: string): void {
    this.onmessage?.({ jsonrpc: '2.0', id, error: { code: REQUEST_TIMEOUT, message } });
  }

  /** Sends what is waiting and reads one message; null for what is none. */
  private async exchange(): Promise<JSONRPCMessage | ScopeEnd | null> {
    const callId = `${this.scope.callId}.${this.exchanges++}`;
    const lines = this.outgoing.splice(0).map((message) => `${JSON.stringify(message)}\n`);
    const timeoutMs = Math.max(1, this.deadline - performance.now());
    const { answer, result } = await askInShell(this.sandbox, this.shell, {
      callId,
      command: exchangeScript(
        answerMark(callId),
        this.starts ? this.command : null,
        lines.join(''),
        timeoutMs,
      ),
      timeoutMs: Math.ceil(timeoutMs) + SHELL_MS,
    });
    const exchanged = Exchanged.safeParse(answer).data;
    if (exchanged && 'line' in exchanged) return exchanged.line as JSONRPCMessage;
    this.noise = noiseOf(result);
    if (exchanged) return exchanged.ended ? 'ended' : 'timeout';
    if (result.timedOut) return 'timeout';
    if (result.output.omittedBytes > 0) return 'flood';
    return result.restarted ? 'ended' : null;
  }
}

function cancellation(requestId: string): JSONRPCMessage {
  return { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId } };
}

/** What the server wrote to its standard error, or bash of it. */
function noiseOf({ output }: ShellResult): string {
  const lines = output.text.split('\n').filter((line) => line !== '' && !line.startsWith('rollout-answer '));
  return lines.join('\n').slice(-2000);
}

/**
 * For bash: starts the server if it is to run and does not, hands it the lines, and prints the next of its own that has
 * an id: the others are notifications, which nobody here asks for, and what programs print by mistake.
 */
function exchangeScript(
  mark: string,
  start: readonly string[] | null,
  lines: string,
  timeoutMs: number,
): string {
  const seconds = timeoutMs / 1000;
  const answer = (json: string) => `printf '\\n%s%s\\n' ${quote(mark)} ${json}`;
  return `
${start === null ? '' : `if ! kill -0 "\${MCP_PID-}" 2>/dev/null; then set +m; coproc MCP { exec setsid ${start.map(quote).join(' ')}; }; fi`}
kill -0 "\${MCP_PID-}" 2>/dev/null || { ${answer(`'{"ended":true}'`)}; return 0; }
trap '' PIPE
printf %s ${quote(lines)} >&"\${MCP[1]}"
trap - PIPE
__end=$((SECONDS + ${Math.ceil(seconds)}))
while :; do
  IFS= read -r -t ${seconds.toFixed(3)} __line <&"\${MCP[0]}"
  __status=$?
  if [[ $__status != 0 || $__line == *'"id"'* ]]; then break; fi
  if ((SECONDS > __end)); then __status=142; break; fi
done
case $__status in
  0) ${answer(`"{\\"line\\":$__line}"`)} ;;
  1) kill -KILL -- "-$MCP_PID"; wait "$MCP_PID"; ${answer(`'{"ended":true}'`)} ;;
  *) ${answer(`'{"ended":false}'`)} ;;
esac
`;
}
