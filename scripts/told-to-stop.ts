/** Rejects when this process is told to end: what it has started can be ended then, whoever ends it. */
export function toldToStop(): Promise<never> {
  return new Promise((_, reject) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) {
      process.once(signal, () => reject(new Error(`ended by ${signal}`)));
    }
  });
}
