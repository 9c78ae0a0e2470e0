// Asking nodes to leave: with a confirmation, and an answer in words.

function askDrainNode(name) {
  const node = pool.picture.nodes.find((node) => node.name === name && node.state === 'joined');
  const main = node?.is_master ? ' It runs main, which another node takes over.' : '';
  confirmDrain(`Ask ${name} to leave?`, `It finishes what ends soon, hands over the rest, and goes. The run goes on without it.${main}`, { node: name });
}

function askDrainSite(name) {
  const nodes = pool.picture.nodes.filter((node) => node.site === name && node.state === 'joined');
  confirmDrain(`Ask all of ${name} to leave?`, `${plural(nodes.length, 'node')} would finish what ends soon, hand over the rest, and go.`, { site: name });
}

function confirmDrain(title, text, body) {
  say($('confirm-title'), title);
  say($('confirm-text'), text);
  $('confirm').returnValue = '';
  $('confirm-yes').onclick = () => { $('confirm').close(); drain(body); };
  $('confirm').showModal();
  $('confirm-no').focus();
}

async function drain(body) {
  try {
    const answer = await fetch('api/drain', { method: 'POST', headers: { 'x-satin': '1', 'content-type': 'application/json' }, body: JSON.stringify(body) });
    const text = (await answer.text()).trim();
    toast(answer.ok ? text[0].toUpperCase() + text.slice(1) : `Not done: ${text}`);
  } catch {
    toast('Not done: the node that serves this page cannot be reached.');
  }
}

function startSteering() {
  $('confirm-no').addEventListener('click', () => $('confirm').close());
}
