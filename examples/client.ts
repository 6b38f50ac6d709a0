/**
 * Starts four samples of one problem and prints their rewards: `npx tsx examples/client.ts`, with the stack up.
 */
import { RolloutClient } from 'durable-rollouts/client';
import { loadConfig } from '../config/load.ts';

const client = await RolloutClient.connect(loadConfig());
const results = await Promise.all(
  [0, 1, 2, 3].map((sample) =>
    client.execute({
      rolloutId: `example-${Date.now()}-${sample}`,
      task: {
        handler: 'math',
        id: 'shelf',
        data: { question: 'A shelf has 4 rows of 9 books. How many books are there?', answer: '36' },
      },
      sample,
      sampling: { maxTokensPerTurn: 64 },
    }),
  ),
);
for (const { rolloutId, outcome, reward, trajectory } of results) {
  console.log(rolloutId, outcome, reward?.total, trajectory?.uri);
}
await client.close();
