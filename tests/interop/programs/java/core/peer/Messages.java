package peer;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Message i of a prefix, and what a row says of a message. */
final class Messages {
    private Messages() {
    }

    static byte[] body(String key, int i) {
        byte[] unit = (key + " ").getBytes(StandardCharsets.UTF_8);
        byte[] body = new byte[i % 50 == 0 ? 6000 : 16 + (37 * i) % 1000];
        for (int at = 0; at < body.length; at++) {
            body[at] = unit[at % unit.length];
        }
        return body;
    }

    static Message message(JSONObject arguments, int i) {
        String key = arguments.getString("prefix") + "-" + i;
        JSONArray tags = arguments.getJSONArray("tags");
        String tag = tags == null || tags.isEmpty() ? "" : tags.getString(i % tags.size());
        Message message = new Message(arguments.getString("topic"), tag, key, body(key, i));
        if (arguments.containsKey("number")) {
            message.putUserProperty(arguments.getString("number"), String.valueOf(i));
        }
        return message;
    }

    static String digest(byte[] body) {
        try {
            byte[] sum = MessageDigest.getInstance("SHA-1").digest(body);
            StringBuilder text = new StringBuilder();
            for (int i = 0; i < 8; i++) {
                text.append(String.format("%02x", sum[i]));
            }
            return text.toString();
        } catch (java.security.NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    static Object[] row(MessageExt message) {
        String unique = message.getUserProperty("UNIQ_KEY");
        return new Object[] {
            message.getKeys(), digest(message.getBody()), message.getQueueId(), message.getQueueOffset(),
            message.getTags(), message.getReconsumeTimes(), null, unique
        };
    }
}
