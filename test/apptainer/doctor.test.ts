import assert from 'node:assert/strict';
import test from 'node:test';
import { type BackendReport, doctorCommand } from '../../client/commands/doctor.ts';
import { loadConfig } from '../../config/load.ts';
import { failure } from '../sandbox/support.ts';
import { APPTAINER, WITHOUT_APPTAINER } from '../support/apptainer.ts';

/** Runs the command with this in the section [sandbox]. */
async function doctor(sandbox: Record<string, unknown>) {
  let [text, reports] = ['', [] as BackendReport[]];
  const code = await doctorCommand(loadConfig({ env: {}, flags: { sandbox } }), {
    json: false,
    note: () => {},
    result: (value, asText) => {
      text = asText();
      reports = (value as { backends: BackendReport[] }).backends;
    },
  });
  const of = (name: string) => reports.find(({ backend }) => backend === name) as BackendReport;
  return { code, text, of };
}

test('the doctor tries every backend and says what each guarantees', {
  skip: WITHOUT_APPTAINER,
}, async () => {
  const { code, text, of } = await doctor({ backend: 'apptainer', apptainer: APPTAINER });
  assert.equal(code, 0);
  assert.deepEqual([of('apptainer').works, of('apptainer').configured], [true, true]);
  for (const name of ['network', 'files', 'processes', 'user', 'systemCalls'] as const) {
    assert.equal(of('apptainer').guarantees[name], true, name);
    assert.equal(of('process').guarantees[name], false, name);
  }
  assert.match(text, /apptainer \(configured\) +│ yes +│ kept apart/);
  assert.match(text, /process: isolates nothing/);
  assert.match(text, /\napptainer: found (apptainer|singularity\S*) version \d+\.\d+\S* \(\/.*\)/);
  assert.match(text, /\ncgroups: (hold limits below|not used, .*: .)/);
});

test('the doctor says why a backend does not work, and what to do', async () => {
  const missing = await doctor({ backend: 'apptainer', apptainer: '/nowhere/apptainer' });
  assert.equal(missing.code, 1);
  assert.equal(missing.of('apptainer').works, false);
  assert.match(missing.of('apptainer').notes.join(), /\/nowhere\/apptainer.*cannot be used/);
  const other = await doctor({ backend: 'process', apptainer: '/nowhere/apptainer' });
  assert.equal(other.code, 0);
  const image = await doctor({ backend: 'apptainer', apptainer: APPTAINER || '/nowhere', image: '/no.sif' });
  assert.equal(image.code, 1);
  if (APPTAINER) assert.match(image.text, /the image \/no\.sif does not exist: set sandbox\.image/);
  assert.throws(
    () => loadConfig({ env: {}, flags: { sandbox: { image: 'relative.sif' } } }),
    failure('InvalidRequest', /sandbox\.image/),
  );
});
