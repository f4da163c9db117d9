package peer;

import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.common.message.MessageExt;

/** What a listener was given and was done with, a line of JSON each, one write a line: it outlives a SIGKILL. */
final class History {
    private final FileOutputStream file;
    private final String name;

    History(String path, String name) throws IOException {
        this.file = new FileOutputStream(path, true);
        this.name = name;
    }

    /**
     * The clock is the machine's, which Python's time.monotonic_ns() reads, too.
     *
     * @param broker the broker that they are from: messages of 4.5 do not know it.
     */
    void note(String kind, String broker, List<MessageExt> messages) {
        StringBuilder lines = new StringBuilder();
        for (MessageExt message : messages) {
            lines.append(String.format(
                "{\"t\":%d,\"proc\":\"%s\",\"kind\":\"%s\",\"topic\":\"%s\",\"queue\":\"%s/%d\",\"offset\":%d,"
                    + "\"key\":\"%s\",\"tries\":%d}%n",
                System.nanoTime(), name, kind, message.getTopic(), broker, message.getQueueId(),
                message.getQueueOffset(), message.getKeys(), message.getReconsumeTimes()));
        }
        try {
            file.write(lines.toString().getBytes(StandardCharsets.UTF_8));
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    /** The listener's work. */
    static void work(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }
}
