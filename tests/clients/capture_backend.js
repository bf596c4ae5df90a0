'use strict';

// A statsd/statsd backend that writes what the daemon saw to the file named by `capture.file` in
// the configuration, one JSON object a line:
//
//   {"started": <seconds>}                                   once; its windows count from here
//   {"packet": "<the datagram or TCP chunk, as UTF-8>"}     as each arrives
//   {"flush": {"timestamp": …, "counters": {…}, …}}         at each flush, the one at exit included
//
// JSON keeps every bit of a double. The three values that JSON has no word for are written as the
// strings "NaN", "Infinity" and "-Infinity".
//
// Lines are appended synchronously, because the last flush happens while the process exits.

const fs = require('fs');

exports.init = (startedAt, config, events) => {
  const { file } = config.capture;
  const append = (entry) => fs.appendFileSync(file, JSON.stringify(entry, spellOut) + '\n');
  append({ started: startedAt });
  events.on('packet', (packet) => append({ packet: packet.toString() }));
  events.on('flush', (timestamp, metrics) => append({ flush: snapshot(timestamp, metrics) }));
  return true;
};

function snapshot(timestamp, metrics) {
  return {
    timestamp,
    counters: metrics.counters,
    counter_rates: metrics.counter_rates,
    gauges: metrics.gauges,
    timers: metrics.timers,
    timer_counters: metrics.timer_counters,
    timer_data: metrics.timer_data,
    sets: membersOf(metrics.sets),
  };
}

function membersOf(sets) {
  return Object.fromEntries(Object.entries(sets).map(([name, set]) => [name, set.values()]));
}

function spellOut(_key, value) {
  return typeof value === 'number' && !Number.isFinite(value) ? String(value) : value;
}
