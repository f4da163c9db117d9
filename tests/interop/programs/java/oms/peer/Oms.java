package peer;

import io.openmessaging.BytesMessage;
import io.openmessaging.KeyValue;
import io.openmessaging.Message;
import io.openmessaging.MessagingAccessPoint;
import io.openmessaging.OMS;
import io.openmessaging.OMSBuiltinKeys;
import io.openmessaging.consumer.PullConsumer;
import io.openmessaging.consumer.PushConsumer;
import io.openmessaging.producer.Producer;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** OpenMessaging as Apache implements it. Arguments: access point, topic to send to, topic to read, messages in it. */
public final class Oms {
    private static synchronized void show(String who, Message message) throws Exception {
        KeyValue system = message.sysHeaders();
        System.out.println(String.join("\t", who, new String(message.getBody(byte[].class), StandardCharsets.UTF_8),
            system.getString(Message.BuiltinKeys.MESSAGE_ID), system.getString(Message.BuiltinKeys.DESTINATION),
            system.getString(Message.BuiltinKeys.SEARCH_KEYS), message.userHeaders().getString("number")));
    }

    public static void main(String[] arguments) {
        int code = 0;
        try {
            run(arguments);
        } catch (Throwable failed) {
            failed.printStackTrace();
            code = 1;
        }
        System.exit(code);
    }

    private static void run(String[] arguments) throws Exception {
        MessagingAccessPoint place = OMS.getMessagingAccessPoint(arguments[0]);
        Producer producer = place.createProducer();
        producer.startup();
        BytesMessage message = producer.createBytesMessage(arguments[1], "from Java".getBytes(StandardCharsets.UTF_8));
        message.putSysHeaders(Message.BuiltinKeys.SEARCH_KEYS, "k-java");
        message.putUserHeaders("number", 7);
        System.out.println("sent\t" + producer.send(message).messageId());
        producer.shutdown();

        int count = Integer.parseInt(arguments[3]);
        CountDownLatch left = new CountDownLatch(count);
        PushConsumer push = place.createPushConsumer(OMS.newKeyValue().put(OMSBuiltinKeys.CONSUMER_ID, arguments[2] + "-push"));
        push.attachQueue(arguments[2], (came, context) -> {
            try {
                show("push", came);
            } catch (Exception failed) {
                throw new IllegalStateException(failed);
            }
            context.ack();
            left.countDown();
        });
        push.startup();
        PullConsumer pull = place.createPullConsumer(OMS.newKeyValue().put(OMSBuiltinKeys.CONSUMER_ID, arguments[2] + "-pull"));
        pull.attachQueue(arguments[2]);
        pull.startup();
        long end = System.currentTimeMillis() + 60_000;
        for (int got = 0; got < count && System.currentTimeMillis() < end; ) {
            Message came = pull.receive();
            if (came != null) {
                show("pull", came);
                pull.ack(came.sysHeaders().getString(Message.BuiltinKeys.MESSAGE_ID));
                got++;
            }
        }
        left.await(60, TimeUnit.SECONDS);
        push.shutdown();
        pull.shutdown();
    }
}
