package peer;

import java.lang.reflect.Constructor;
import org.apache.rocketmq.remoting.RPCHook;

/** The account of this process, {@code -Dpeer.account=key:secret}: its hook signs requests. Old clients have no such class. */
public final class Account {
    private Account() {
    }

    /** The hook of clients and tools; null without an account. */
    public static RPCHook hook() {
        String account = System.getProperty("peer.account");
        if (account == null) {
            return null;
        }
        try {
            String common = "org.apache.rocketmq.acl.common.";
            Class<?> credentials = Class.forName(common + "SessionCredentials");
            String[] parts = account.split(":", 2);
            Object one = credentials.getConstructor(String.class, String.class).newInstance(parts[0], parts[1]);
            Constructor<?> made = Class.forName(common + "AclClientRPCHook").getConstructor(credentials);
            return (RPCHook) made.newInstance(one);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }
}
