'use strict';
// What the drivers of ali-ons share: --name value arguments, events as JSON lines on stdout, an end when stdin ends or SIGTERM comes.

const fs = require('fs');
const zlib = require('zlib');

const BODY_SHOWN_MAX = 64;
const CRC_TABLE = Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  return crc >>> 0;
});

/** The options of the command line over their defaults; numbers where the default is one. */
function parseArguments(defaults) {
  const given = {
    'name-server': undefined, topic: undefined, group: undefined, story: '', 'access-key': '', 'secret-key': '', ...defaults,
  };
  const argv = process.argv.slice(2);
  for (let i = 0; i < argv.length; i += 2) {
    const name = argv[i].slice(2);
    if (!argv[i].startsWith('--') || !(name in given)) throw new Error(`expected --name value, found ${argv[i]}`);
    given[name] = typeof defaults[name] === 'number' ? Number(argv[i + 1]) : argv[i + 1];
  }
  for (const name of ['name-server', 'topic', 'group']) {
    if (given[name] === undefined) throw new Error(`--${name} is missing`);
  }
  return given;
}

/** What producers and consumers are made with alike; without --access-key they sign nothing. */
function clientOptions(given) {
  const account = given['access-key'] ? { accessKey: given['access-key'], secretKey: given['secret-key'] } : {};
  return { nameSrv: given['name-server'], httpclient, logger, ...account };
}

/** One event as one line; it is written before this returns. */
function emit(event, fields) {
  const line = { event, ...fields, wall_ms: Date.now(), t_ns: Number(process.hrtime.bigint()) };
  fs.writeSync(1, JSON.stringify(line) + '\n');
}

/** What producers and consumers say of a body alike. */
function bodyFields(body) {
  return {
    body: body.length <= BODY_SHOWN_MAX ? body.toString() : null,
    bodyBytes: body.length,
    bodyCrc32: crc32(body),
  };
}

function crc32(bytes) {
  if (zlib.crc32) return zlib.crc32(bytes);
  let crc = 0xffffffff;
  for (const byte of bytes) crc = CRC_TABLE[(crc ^ byte) & 0xff] ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}

/** Close and leave when stdin ends or SIGTERM comes. */
function closeAtTheEnd(close) {
  let closing = false;
  const end = async () => {
    if (closing) return;
    closing = true;
    await close();
    emit('closed', {});
    process.exit(0);
  };
  process.on('SIGTERM', end);
  process.stdin.on('end', end).resume();
}

/** What ali-ons tells of its work goes to stderr, where only a person reads it. */
const logger = {
  debug() {},
  info() {},
  warn: (...words) => console.error('warning:', ...words),
  error: (...words) => console.error('error:', ...words),
};

/** ali-ons asks for one, for name servers behind a URL; with `nameSrv` it is never used. */
const httpclient = {
  request() {
    throw new Error('nobody asks for a URL here');
  },
};

module.exports = { bodyFields, clientOptions, closeAtTheEnd, emit, parseArguments };
