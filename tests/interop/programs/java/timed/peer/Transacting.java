package peer;

import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** txstart, txsend, txanswer, txchecks, txstop: transaction producers by handle. */
public final class Transacting {
    private static final Map<String, Side> SIDES = new ConcurrentHashMap<>();

    /** One producer, what it answers to checks, and the checks it was asked. */
    private static final class Side implements TransactionListener {
        private final TransactionMQProducer producer;
        private final List<Object[]> checks = new ArrayList<>();
        private volatile LocalTransactionState answer;

        Side(TransactionMQProducer producer) {
            this.producer = producer;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object state) {
            return LocalTransactionState.valueOf((String) state);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            synchronized (checks) {
                checks.add(new Object[] {
                    message.getKeys(), new String(message.getBody(), StandardCharsets.UTF_8), message.getTopic(),
                    message.getTransactionId(), message.getProperty("TRANSACTION_CHECK_TIMES"), message.getTags(),
                });
            }
            return answer;
        }
    }

    private Transacting() {
    }

    public static Map<String, Peer.Op> ops() {
        Map<String, Peer.Op> ops = new LinkedHashMap<>();
        ops.put("txstart", Transacting::start);
        ops.put("txsend", Transacting::send);
        ops.put("txanswer", arguments -> {
            side(arguments).answer = LocalTransactionState.valueOf(arguments.getString("answer"));
            return Peer.done();
        });
        ops.put("txchecks", arguments -> {
            synchronized (side(arguments).checks) {
                return Peer.rows(new ArrayList<>(side(arguments).checks));
            }
        });
        ops.put("txstop", arguments -> {
            SIDES.remove(arguments.getString("handle")).producer.shutdown();
            return Peer.done();
        });
        return ops;
    }

    private static Side side(JSONObject arguments) {
        return SIDES.get(arguments.getString("handle"));
    }

    private static Map<String, Object> start(JSONObject arguments) throws Exception {
        String handle = arguments.getString("handle");
        TransactionMQProducer producer = Patience.with(new TransactionMQProducer(arguments.getString("group")));
        producer.setNamesrvAddr(arguments.getString("namesrv"));
        producer.setInstanceName(handle);
        producer.setPollNameServerInterval(1000);
        producer.setHeartbeatBrokerInterval(1000);
        producer.setSendMsgTimeout(Patience.MILLIS);
        Side side = new Side(producer);
        side.answer = LocalTransactionState.valueOf(arguments.getString("answer"));
        producer.setTransactionListener(side);
        producer.start();
        SIDES.put(handle, side);
        // A client heartbeats only to brokers of topics it knows.
        producer.fetchPublishMessageQueues(arguments.getString("topic"));
        return Peer.done();
    }

    private static Map<String, Object> send(JSONObject arguments) throws Exception {
        Side side = side(arguments);
        String key = arguments.getString("key");
        byte[] body = key.getBytes(StandardCharsets.UTF_8);
        Message message = new Message(arguments.getString("topic"), "A", key, body);
        Delaying.prepare(message, arguments);
        TransactionSendResult result = side.producer.sendMessageInTransaction(message, arguments.getString("state"));
        return Delaying.told(result);
    }
}
