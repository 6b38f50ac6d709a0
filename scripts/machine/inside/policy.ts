// Runs in the machine: the chaos suite's recorded policy, as an LLM server on the port that is the argument.
import { PolicyServer } from '../../../chaos/policy-server.ts';

await PolicyServer.start(undefined, '127.0.0.1', Number(process.argv[2]));
