import {
  Client,
  type ContentBlock,
  type JsonSchemaValidator,
  ProtocolError,
} from '@modelcontextprotocol/client';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import type { ToolSpec } from '../../contracts/tools.ts';
import type { BoundSandbox } from '../sandbox/bound.ts';
import { ShellTransport } from './mcp-transport.ts';
import type { Tool, ToolContext, ToolOutcome, ToolServer } from './tool.ts';

/** Milliseconds for a server to come up and say what it offers. */
const OPEN_MS = 60_000;
/** The transport keeps the time; the client's own clock is set beyond it. */
const NEVER_MS = 2 ** 31 - 1;
/** Characters of a result that are shown: half from the head, half from the tail. */
const SHOWN_CHARACTERS = 16_000;
/** What a tool's name may be (the protocol's own rule): others could not be told from the text around them. */
const TOOL_NAME = /^[A-Za-z0-9_./-]{1,128}$/;
/** Characters of all that a server says of its tools: it is in every prompt. */
const MOST_CHARACTERS = 256 * 1024;
/** An answer is the model's to judge: a schema of the server's, with its patterns, could take for ever. */
const UNCHECKED: JsonSchemaValidator<unknown> = (data) => ({ valid: true, data, errorMessage: undefined });

/** An MCP server to be run in the sandbox. */
export interface McpServer {
  /** Letters, digits, hyphens; the tools are called `<name>_<tool>`. */
  readonly name: string;
  /** Program and arguments, as found in the sandbox. */
  readonly command: readonly [string, ...string[]];
}

/**
 * The tools of an MCP server that runs inside the sandbox and speaks over its standard streams. Each has a
 * fenced block of its name, with a JSON object of the arguments.
 */
export function mcp(server: McpServer): ToolServer {
  if (!/^[A-Za-z0-9-]{1,40}$/.test(server.name)) {
    throw new RolloutError(
      'HandlerFailed',
      `${server.name}: the name of an MCP server is letters, digits and -`,
    );
  }
  return { open: (sandbox) => new McpSession(server, sandbox).tools() };
}

class McpSession {
  private readonly server: McpServer;
  private readonly transport: ShellTransport;
  private client: Client | null = null;

  constructor(server: McpServer, sandbox: BoundSandbox) {
    this.server = server;
    this.transport = new ShellTransport(sandbox, `mcp-${server.name}`, server.command);
  }

  async tools(): Promise<Tool[]> {
    const client = await this.connect(`mcp.${this.server.name}`);
    const { tools } = await this.checked(client.listTools(undefined, { timeout: NEVER_MS }));
    const specs = tools.map((tool) =>
      this.spec(tool.name, tool.description ?? tool.title ?? '', tool.inputSchema),
    );
    const characters = JSON.stringify(specs).length;
    if (characters > MOST_CHARACTERS) {
      throw this.refused(`says ${characters} characters of its tools, more than ${MOST_CHARACTERS}`);
    }
    return tools.map((tool, index) => ({
      spec: specs[index] as ToolSpec,
      run: (args, context) => this.run(tool.name, args, context),
    }));
  }

  private refused(why: string): RolloutError {
    return new RolloutError('HandlerFailed', `MCP server ${this.server.name} ${why}`);
  }

  private spec(tool: string, description: string, parameters: Record<string, unknown>): ToolSpec {
    if (!TOOL_NAME.test(tool)) {
      throw this.refused(`has a tool ${JSON.stringify(tool.slice(0, 200))}: names are ${TOOL_NAME.source}`);
    }
    const name = `${this.server.name}_${tool}`;
    return { name, description, parameters, checksItself: true, fence: { language: name } };
  }

  private async run(name: string, args: Record<string, unknown>, context: ToolContext): Promise<ToolOutcome> {
    const { callId, timeoutMs, sandbox } = context;
    const isNew = this.client === null;
    const client = this.client ?? (await this.connect(`${callId}.open`));
    this.transport.enter({ callId, timeoutMs }, false);
    try {
      const result = await client.callTool({ name, arguments: args }, { timeout: NEVER_MS });
      const shown = await show(result.content, callId, sandbox);
      const text = clip(shown === '' ? JSON.stringify(result.structuredContent ?? {}) : shown);
      return { status: isNew ? 'restarted' : 'ok', exitCode: result.isError ? 1 : 0, text };
    } catch (error) {
      return this.unanswered(error, timeoutMs);
    }
  }

  /** @throws what the sandbox threw */
  private unanswered(error: unknown, timeoutMs: number): ToolOutcome {
    const { failure, end } = this.transport;
    if (failure !== null) throw failure;
    if (end === 'timeout') {
      return { status: 'timeout', exitCode: null, text: `[no answer within ${timeoutMs / 1000} s]` };
    }
    if (end === 'flood') {
      return { status: 'ok', exitCode: 1, text: '[no answer among too much else that the server said]' };
    }
    if (end === 'ended') {
      this.client = null;
      const text = `[the server ${this.server.name} ended; the next call starts it anew, without its state]`;
      return { status: 'restarted', exitCode: null, text };
    }
    if (error instanceof ProtocolError) return { status: 'ok', exitCode: 1, text: clip(error.message) };
    return { status: 'ok', exitCode: 1, text: clip(`the server's answer is not valid: ${messageOf(error)}`) };
  }

  private async connect(callId: string): Promise<Client> {
    this.transport.enter({ callId, timeoutMs: OPEN_MS }, true);
    const jsonSchemaValidator = { getValidator: () => UNCHECKED as JsonSchemaValidator<never> };
    const client = new Client({ name: 'durable-rollouts', version: '1' }, { jsonSchemaValidator });
    await this.checked(client.connect(this.transport, { timeout: NEVER_MS }));
    this.client = client;
    return client;
  }

  /** What the server must be able to do for there to be tools at all. */
  private async checked<T>(work: Promise<T>): Promise<T> {
    try {
      return await work;
    } catch (error) {
      const { failure, end, noise } = this.transport;
      if (failure !== null) throw failure;
      if (end === 'flood') throw this.refused('says too much before it says what it offers');
      const how = end === 'timeout' ? `did not answer within ${OPEN_MS / 1000} s` : 'did not start';
      const why = noise || messageOf(error);
      throw new RolloutError('HandlerFailed', `MCP server ${this.server.name} ${how}: ${why}`, {
        cause: error,
      });
    }
  }
}

/** Content as text; images become files of the workspace. */
async function show(
  content: readonly ContentBlock[],
  callId: string,
  sandbox: BoundSandbox,
): Promise<string> {
  const parts: string[] = [];
  for (const block of content) {
    if (block.type === 'text') parts.push(block.text);
    else if (block.type === 'resource' && 'text' in block.resource) parts.push(block.resource.text);
    else if (block.type === 'resource_link') parts.push(`[${block.name}: ${block.uri}]`);
    else if (block.type === 'image' && /^image\/\w+$/.test(block.mimeType)) {
      const file = `images/mcp-${callId}-${parts.length + 1}.${block.mimeType.slice('image/'.length)}`;
      await sandbox.writeFile(`${sandbox.workspace}/${file}`, Buffer.from(block.data, 'base64'));
      parts.push(`[${block.mimeType} saved as ${file}]`);
    } else parts.push(`[${block.type}, not shown]`);
  }
  return parts.join('\n');
}

function clip(text: string): string {
  const rest = text.length - SHOWN_CHARACTERS;
  if (rest <= 0) return text;
  const half = SHOWN_CHARACTERS / 2;
  return `${text.slice(0, half)}\n[... ${rest} characters left out ...]\n${text.slice(-half)}`;
}
