/** See environment.mjs. */
export function pinnedEnvironment(options: {
  readonly name: string;
  readonly requirements: string;
  readonly env: NodeJS.ProcessEnv;
  readonly say: () => void;
}): Promise<string>;
