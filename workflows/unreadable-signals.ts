import { defaultPayloadConverter, type Payload } from '@temporalio/common';
import { type ActivateInput, log, type Next, type WorkflowInternalsInterceptor } from '@temporalio/workflow';

/**
 * A signal whose payload nobody can read (another encoding, text that is no JSON) would fail each task of its workflow
 * from then on: it is refused with a reason in the log, as one that can be read and makes no sense is.
 */
class Readable implements WorkflowInternalsInterceptor {
  activate(input: ActivateInput, next: Next<WorkflowInternalsInterceptor, 'activate'>): void {
    const { activation } = input;
    activation.jobs = (activation.jobs ?? []).filter(({ signalWorkflow: signal }) => {
      const problem = signal && problemOf(signal.input);
      if (problem) log.warn('a signal is ignored', { signal: signal.signalName, problem });
      return !problem;
    });
    next(input);
  }
}

function problemOf(payloads: Payload[] | null | undefined): string | null {
  try {
    for (const payload of payloads ?? []) defaultPayloadConverter.fromPayload(payload);
    return null;
  } catch (error) {
    return `its payload cannot be read: ${String(error)}`;
  }
}

/** Part of the workflows' bundle. */
export const interceptors = () => ({ internals: [new Readable()] });
