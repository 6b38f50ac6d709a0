#!/usr/bin/env node
import { register } from 'tsx/esm/api';

register();
const { main } = await import('../client/cli.ts');
process.exit(await main(process.argv));
