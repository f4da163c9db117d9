package peer;

import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/** sendon, senton, sendoff: producers that send one message after the other, whatever becomes of each. */
final class SendingOn {
    private static final Map<String, SendingOn> RUNNING = new ConcurrentHashMap<>();
    /** Milliseconds between two sends, and after one that failed. */
    private static final long PAUSE = 10;
    private static final long AFTER_FAILURE = 50;

    private final List<Object[]> acknowledged = new ArrayList<>();
    private final List<String> others = new ArrayList<>();
    private final DefaultMQProducer producer;
    private final Thread thread;
    private volatile boolean ended;

    private SendingOn(JSONObject arguments) throws Exception {
        // As it comes: with its three seconds for a send, and two more tries.
        producer = new DefaultMQProducer(arguments.getString("group"));
        producer.setNamesrvAddr(arguments.getString("namesrv"));
        producer.setInstanceName(arguments.getString("handle"));
        if (arguments.containsKey("poll")) {
            producer.setPollNameServerInterval(arguments.getIntValue("poll"));
        }
        producer.start();
        thread = new Thread(() -> send(arguments), arguments.getString("handle"));
        thread.start();
    }

    static Map<String, Peer.Op> ops() {
        Map<String, Peer.Op> ops = new LinkedHashMap<>();
        ops.put("sendon", arguments -> {
            RUNNING.put(arguments.getString("handle"), new SendingOn(arguments));
            return Peer.done();
        });
        ops.put("senton", arguments -> RUNNING.get(arguments.getString("handle")).answer());
        ops.put("sendoff", arguments -> RUNNING.remove(arguments.getString("handle")).end());
        return ops;
    }

    private void send(JSONObject arguments) {
        for (int i = 0; !ended; i++) {
            Message message = Messages.message(arguments, i);
            String digest = Messages.digest(message.getBody());
            long pause = PAUSE;
            try {
                SendResult result = producer.send(message);
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    note(message.getKeys(), digest);
                } else {
                    other(String.valueOf(result.getSendStatus()));
                }
            } catch (Exception error) {
                other(String.valueOf(error));
                pause = AFTER_FAILURE;
            }
            History.work(pause);
        }
    }

    private synchronized void note(String key, String digest) {
        acknowledged.add(new Object[] {key, digest, System.nanoTime()});
    }

    private synchronized void other(String what) {
        others.add(what);
    }

    private synchronized Map<String, Object> answer() {
        Map<String, Object> answer = Peer.done();
        answer.put("acknowledged", new ArrayList<>(acknowledged));
        answer.put("others", new ArrayList<>(others));
        return answer;
    }

    private Map<String, Object> end() throws InterruptedException {
        ended = true;
        thread.join();
        Closing.after(3, producer::shutdown);
        return answer();
    }
}
