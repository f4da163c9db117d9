'use strict';
// Reads requests, runs them with ali-ons, writes answers: see ../README.md.

const crypto = require('crypto');
const readline = require('readline');
const { Consumer, Message, Producer } = require('ali-ons');
const fromWhere = require('ali-ons/lib/consumer/consume_from_where');

const logger = Object.fromEntries(
  ['debug', 'info', 'warn', 'error', 'log'].map(level => [
    level,
    (...words) => ['warn', 'error'].includes(level) && console.error(...words),
  ])
);

function body(key, i) {
  const size = i % 50 === 0 ? 6000 : 16 + ((37 * i) % 1000);
  return Buffer.alloc(size, key + ' ');
}

function digest(content) {
  return crypto.createHash('sha1').update(content).digest('hex').slice(0, 16);
}

/** [key, digest, queue, offset, tag, reconsume times, offset message id, unique id] */
function arrived(message) {
  return [
    message.keys, digest(message.body), message.queueId, Number(message.queueOffset), message.tags,
    message.reconsumeTimes, null, message.uniqKey || message.properties.UNIQ_KEY,
  ];
}

const consumers = new Map();

class Arrivals {
  constructor(consumer) {
    this.consumer = consumer;
    this.rows = [];
    this.counted = 0;
    this.changed = () => undefined;
  }

  add(message) {
    this.rows.push(arrived(message));
    if (!message.keys.startsWith('warm')) this.counted++;
    this.changed();
  }

  async upTo(count, seconds) {
    let ended = false;
    const timer = setTimeout(() => { ended = true; this.changed(); }, seconds * 1000);
    while (this.counted < count && !ended) await new Promise(resolve => { this.changed = resolve; });
    clearTimeout(timer);
    return this.rows;
  }
}

function settings(asked, group, instance) {
  const [accessKey, secretKey] = (asked.account || '').split(':');
  return {
    ...group,
    ...(accessKey ? { accessKey, secretKey } : {}),
    instanceName: instance,
    nameSrv: asked.namesrv,
    httpclient: {},
    logger,
    clientIP: '127.0.0.1',
    sendMsgTimeout: 60000,
    pollNameServerInteval: 1000,
    rebalanceInterval: 1000,
  };
}

const ops = {
  async ops() {
    return { ops: Object.keys(ops) };
  },

  async produce(asked) {
    if (asked.mode !== 'sync') throw new Error(`the client has no such call: ${asked.mode}`);
    const producer = new Producer(settings(asked, { producerGroup: asked.group }, `produce-${process.hrtime.bigint()}`));
    producer.on('error', error => console.error(error));
    await producer.ready();
    const rows = [];
    for (let i = asked.first || 0; i < (asked.first || 0) + asked.count; i++) {
      const key = `${asked.prefix}-${i}`;
      const content = body(key, i);
      const tag = asked.tags && asked.tags.length ? asked.tags[i % asked.tags.length] : '';
      const message = new Message(asked.topic, tag, content);
      message.keys = [key];
      if (asked.number) message.properties[asked.number] = String(i);
      const result = await producer.send(message);
      if (result.sendStatus !== 'SEND_OK') throw new Error(`not SEND_OK: ${JSON.stringify(result)}`);
      rows.push([
        key, digest(content), Number(result.messageQueue.queueId), Number(result.queueOffset), tag, 0,
        result.msgId, null,
      ]);
    }
    await producer.close();
    return { rows };
  },

  async delayed(asked) {
    const producer = new Producer(settings(asked, { producerGroup: 'delaying' }, `delaying-${process.hrtime.bigint()}`));
    producer.on('error', error => console.error(error));
    await producer.ready();
    const message = new Message(asked.topic, 'A', asked.key);
    message.keys = [asked.key];
    if (asked.level) message.delayTimeLevel = asked.level;
    Object.assign(message.properties, asked.properties || {});
    const result = await producer.send(message);
    await producer.close();
    return {
      status: result.sendStatus, queue: Number(result.messageQueue.queueId), offset: Number(result.queueOffset),
      offsetId: result.msgId, uniqueId: null, handle: null,
    };
  },

  async subscribe(asked) {
    if (asked.orderly) throw new Error('the client has no such call: orderly');
    const consumer = new Consumer({
      ...settings(asked, { consumerGroup: asked.group }, asked.handle),
      isBroadcast: asked.model === 'broadcasting',
      consumeFromWhere: fromWhere.CONSUME_FROM_FIRST_OFFSET,
      parallelConsumeLimit: 32,
      ...(asked.maxReconsume === undefined ? {} : { maxReconsumeTimes: asked.maxReconsume }),
    });
    consumer.on('error', error => asked.fail || console.error(error));
    const into = new Arrivals(consumer);
    const expression = asked.sql ? { expressionType: 'SQL92', subString: asked.expression } : asked.expression;
    consumer.subscribe(asked.topic, expression, async message => {
      into.add(message);
      // Its own ACTION_RETRY is lost on the way when a retried message fails again; an error is not.
      if (asked.fail) throw new Error('asked to fail');
    });
    await consumer.ready();
    consumers.set(asked.handle, into);
    return {};
  },

  async received(asked) {
    return { rows: await consumers.get(asked.handle).upTo(asked.count, asked.timeout) };
  },

  async persist(asked) {
    await consumers.get(asked.handle).consumer.persistConsumerOffset();
    return {};
  },

  async unsubscribe(asked) {
    const { consumer } = consumers.get(asked.handle);
    consumers.delete(asked.handle);
    await consumer.close();
    return {};
  },
};

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const asked = JSON.parse(line);
    let answer;
    try {
      if (!ops[asked.op]) throw new Error(`the client has no such call: ${asked.op}`);
      answer = await ops[asked.op](asked);
    } catch (error) {
      console.error(error);
      answer = { error: String(error) };
    }
    process.stdout.write(JSON.stringify({ id: asked.id, ...answer }) + '\n');
  }
  process.exit(0);
}

main();
