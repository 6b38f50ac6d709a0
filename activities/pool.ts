import { ApplicationFailure, Context } from '@temporalio/activity';
import type { LlmServer } from '../contracts/llm.ts';
import type { ModelFacts, PoolActivities } from '../contracts/pool.ts';
import { atEdge } from './errors.ts';
import { withHeartbeat } from './heartbeat.ts';
import type { LlmDialect } from './llm/dialect.ts';
import { makeDialect } from './llm/dialects.ts';
import { HttpRefused } from './llm/http.ts';
import { type Model, openModel } from './llm/model.ts';

/** Large weights take minutes to load, and a first request may compile kernels. */
const PATIENT = { firstByteMs: 3_600_000, idleMs: 3_600_000 };

/** What a pool has done to its servers, by a process that reaches them. */
export function makePoolActivities(): PoolActivities {
  return {
    probe: ({ server }) => onServer(server, (dialect, signal) => factsOf(server, dialect, signal)),

    loadWeights: ({ server, folder, version, pause }) =>
      onServer(server, async ({ control, url }, signal) => {
        if (!control) throw ApplicationFailure.nonRetryable(`${url} cannot load weights`, 'LlmUnsuitable');
        await control.pause(pause, signal);
        try {
          await control.loadWeights({ folder, version: String(version) }, signal);
        } finally {
          // One that could not load them is put out of use, but not left standing for whoever else asks it.
          await control.resume(signal);
        }
        const now = await control.version(signal);
        if (now === String(version)) return;
        const what = `${url} says that its weights are of version ${now} after ${version} was loaded`;
        throw ApplicationFailure.nonRetryable(what, 'LlmInvalidAnswer');
      }),
  };
}

function onServer<R>(
  { dialect: kind, url }: LlmServer,
  work: (dialect: LlmDialect, signal: AbortSignal) => Promise<R>,
): Promise<R> {
  return atEdge('LlmUnreachable', async () => {
    const dialect = makeDialect(kind, url, PATIENT);
    try {
      return await withHeartbeat(
        () => null,
        () => work(dialect, Context.current().cancellationSignal),
      );
    } finally {
      await dialect.close();
    }
  });
}

async function factsOf(server: LlmServer, dialect: LlmDialect, signal: AbortSignal): Promise<ModelFacts> {
  const model = await openModel(server, dialect, signal);
  const { description, contextTokens, identity } = model;
  const version = await versionOf(dialect, signal);
  return {
    model: description.model,
    contextTokens,
    vocabularySize: description.vocabularySize,
    parameterCount: description.parameterCount,
    tokenizerHash: identity.tokenizer_hash,
    templateHash: identity.template_hash,
    control: version !== null,
    tellsVersions: version !== null && (await tellsVersions(model, dialect, signal)),
    version,
  };
}

/** Null also where such calls exist and are switched off. */
async function versionOf({ control }: LlmDialect, signal: AbortSignal): Promise<string | null> {
  if (!control) return null;
  try {
    return await control.version(signal);
  } catch (error) {
    if (error instanceof HttpRefused && [403, 404, 405].includes(error.status)) return null;
    throw error;
  }
}

/** Found out with one token: it depends on how the server was started. */
async function tellsVersions(
  { renderer }: Model,
  dialect: LlmDialect,
  signal: AbortSignal,
): Promise<boolean> {
  const promptIds = await renderer.initial([{ role: 'user', content: 'Hello' }], signal);
  const { stopIds } = renderer;
  const { versions } = await dialect.generate(
    { promptIds, stopIds, maxTokens: 1, temperature: 1, topP: 1 },
    signal,
  );
  return versions !== undefined;
}
