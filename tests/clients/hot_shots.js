'use strict';

// Sends a fixed set of metrics with the npm client hot-shots: hot_shots.js HOST PORT
//
//   counter    hotshots.requests   1, then 4 more                     tags route:/home, canary
//   gauge      hotshots.depth      17.5
//   timer      hotshots.latency    12.5 ms                            tag  route:/home
//   histogram  hotshots.bytes      512
//   distribution hotshots.wait     0.25
//   set        hotshots.users      alice, bob, alice
//
// Every metric also carries the global tag client:hot-shots.

const StatsD = require('../../.test-tools/node_modules/hot-shots');

const [host, port] = process.argv.slice(2);
const client = new StatsD({
  host,
  port: Number(port),
  globalTags: { client: 'hot-shots' },
  // One metric a packet, and none held back for company.
  maxBufferSize: 0,
  errorHandler: fail,
});

client.increment('hotshots.requests', 1, ['route:/home', 'canary']);
client.increment('hotshots.requests', 4, ['route:/home', 'canary']);
client.gauge('hotshots.depth', 17.5);
client.timing('hotshots.latency', 12.5, ['route:/home']);
client.histogram('hotshots.bytes', 512);
client.distribution('hotshots.wait', 0.25);
client.set('hotshots.users', 'alice');
client.set('hotshots.users', 'bob');
client.set('hotshots.users', 'alice');
client.close((error) => error && fail(error));

function fail(error) {
  console.error(error);
  process.exitCode = 1;
}
