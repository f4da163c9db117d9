package peer;

import org.apache.rocketmq.client.ClientConfig;

/** A minute where clients give up after three seconds: a busy machine is not what is tested. */
public final class Patience {
    public static final int MILLIS = 60_000;

    private Patience() {
    }

    public static <T extends ClientConfig> T with(T client) {
        try {
            ClientConfig.class.getMethod("setMqClientApiTimeout", int.class).invoke(client, MILLIS);
        } catch (NoSuchMethodException older) {
            return client;
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
        return client;
    }
}
