import java.lang.reflect.*;
import java.net.*;
import java.nio.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.*;

/**
 * Writes golden bytes with the published classes of one RocketMQ release, one JSON object a line on standard output.
 * How to run it is in README.md beside this file.
 */
public class Golden {
    static final String[] PACKAGES = {
        "org.apache.rocketmq.common.", "org.apache.rocketmq.common.admin.", "org.apache.rocketmq.common.filter.",
        "org.apache.rocketmq.common.protocol.body.", "org.apache.rocketmq.common.protocol.header.",
        "org.apache.rocketmq.common.protocol.header.namesrv.", "org.apache.rocketmq.common.protocol.header.filtersrv.",
        "org.apache.rocketmq.common.protocol.heartbeat.", "org.apache.rocketmq.common.protocol.route.",
        "org.apache.rocketmq.common.protocol.topic.", "org.apache.rocketmq.common.subscription.",
        "org.apache.rocketmq.client.consumer.store.", "org.apache.rocketmq.remoting.protocol.",
        "org.apache.rocketmq.remoting.protocol.admin.", "org.apache.rocketmq.remoting.protocol.body.",
        "org.apache.rocketmq.remoting.protocol.filter.", "org.apache.rocketmq.remoting.protocol.header.",
        "org.apache.rocketmq.remoting.protocol.header.namesrv.", "org.apache.rocketmq.remoting.protocol.heartbeat.",
        "org.apache.rocketmq.remoting.protocol.route.", "org.apache.rocketmq.remoting.protocol.subscription.",
        "org.apache.rocketmq.remoting.protocol.topic.",
    };
    static String release;
    static int count;

    static Class<?> find(String simple) {
        for (String p : PACKAGES) {
            try {
                return Class.forName(p + simple);
            } catch (ClassNotFoundException e) {
                continue;
            }
        }
        return null;
    }

    static String text(String s) {
        StringBuilder b = new StringBuilder("\"");
        for (char c : s.toCharArray()) {
            if (c < 0x20 || c > 0x7e || c == '"' || c == '\\') b.append(String.format("\\u%04x", (int) c));
            else b.append(c);
        }
        return b.append('"').toString();
    }

    static String hex(byte[] bytes) {
        StringBuilder b = new StringBuilder();
        for (byte x : bytes) b.append(String.format("%02x", x));
        return b.toString();
    }

    /** One golden object: pairs of name and value; a String is written as a text, byte[] as hex, the rest as it prints. */
    static void put(String kind, String name, Object... pairs) {
        StringBuilder b = new StringBuilder("{\"kind\":" + text(kind) + ",\"name\":" + text(name));
        for (int i = 0; i < pairs.length; i += 2) {
            Object v = pairs[i + 1];
            b.append(',').append(text((String) pairs[i])).append(':');
            if (v == null) b.append("null");
            else if (v instanceof byte[]) b.append(text(hex((byte[]) v)));
            else if (v instanceof String) b.append(text((String) v));
            else b.append(v);
        }
        System.out.println(b.append('}'));
        count++;
    }

    // ---- objects filled by reflection -------------------------------------------------------------------------

    static int counter;
    static final double[] DOUBLES = {1.5, 0.0, 123456.75, 1.0E10, 1.25E-5};

    static String word(String name, int i, boolean odd) {
        return odd ? name + i + " \u00e9\u4e2d\ud83d\ude00/\"\\\u0001\u001f\u007f\u2028" : name + i;
    }

    static Object value(Type type, String name, int n, int i, boolean odd) throws Exception {
        counter++;
        if (type instanceof ParameterizedType) {
            ParameterizedType p = (ParameterizedType) type;
            return collection((Class<?>) p.getRawType(), p.getActualTypeArguments(), name, n, odd);
        }
        Class<?> c = (Class<?>) type;
        if (c == String.class) return word(name, i, odd);
        if (c == int.class || c == Integer.class) return counter;
        if (c == long.class || c == Long.class) return 1700000000000L + counter;
        if (c == boolean.class || c == Boolean.class) return Boolean.TRUE;
        if (c == double.class || c == Double.class) return DOUBLES[counter % DOUBLES.length];
        if (c == AtomicLong.class) return new AtomicLong(counter);
        if (c == AtomicInteger.class) return new AtomicInteger(counter);
        if (c == MessageQueue.class) return new MessageQueue(word("topic", i, odd), word("broker", i, odd), i);
        if (c == Properties.class) {
            Properties p = new Properties();
            p.put(word("key", i, odd), word("value", i, odd));
            return p;
        }
        if (c.isEnum()) return c.getEnumConstants()[i % c.getEnumConstants().length];
        if (c == BitSet.class) {
            BitSet b = new BitSet();
            b.set(0);
            b.set(9);
            return b;
        }
        if (Map.class.isAssignableFrom(c) || Collection.class.isAssignableFrom(c)) return collection(c, new Type[] {String.class, String.class}, name, n, odd);
        if (c == Object.class || c.isArray() || c.isInterface() || Modifier.isAbstract(c.getModifiers())) return null;
        return fill(c, n, odd, i);
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static Object collection(Class<?> c, Type[] args, String name, int n, boolean odd) throws Exception {
        if (Map.class.isAssignableFrom(c)) {
            Map map = ConcurrentMap.class.isAssignableFrom(c) ? new ConcurrentHashMap()
                : SortedMap.class.isAssignableFrom(c) ? new TreeMap() : new HashMap();
            for (int i = 0; i < n; i++) {
                Object k = args[0] == Integer.class ? (Object) i : args[0] == Long.class ? (Object) (long) i : value(args[0], name + "Key", n, i, odd);
                map.put(k, value(args[1], name, n, i, odd));
            }
            return map;
        }
        Collection all = List.class.isAssignableFrom(c) ? new ArrayList() : SortedSet.class.isAssignableFrom(c) ? new TreeSet() : Set.class.isAssignableFrom(c) ? new HashSet() : new ArrayList();
        for (int i = 0; i < n; i++) all.add(value(args[0], name, n, i, odd));
        return all;
    }

    static List<Field> fields(Class<?> c) {
        List<Field> all = new ArrayList<>();
        for (; c != null && c != Object.class; c = c.getSuperclass())
            for (Field f : c.getDeclaredFields())
                if (!Modifier.isStatic(f.getModifiers()) && !f.getName().startsWith("this$")) all.add(f);
        return all;
    }

    static Object fresh(Class<?> c) throws Exception {
        Constructor<?> k = c.getDeclaredConstructors()[0];
        for (Constructor<?> one : c.getDeclaredConstructors()) if (one.getParameterCount() < k.getParameterCount()) k = one;
        k.setAccessible(true);
        Object[] nothing = new Object[k.getParameterCount()];
        for (int i = 0; i < nothing.length; i++) {
            Class<?> p = k.getParameterTypes()[i];
            nothing[i] = p == boolean.class ? (Object) false : p == int.class ? (Object) 0 : p == long.class ? (Object) 0L : p == double.class ? (Object) 0.0 : null;
        }
        return k.newInstance(nothing);
    }

    static Object fill(Class<?> c, int n, boolean odd, int index) throws Exception {
        Object o = fresh(c);
        for (Field f : fields(c)) {
            if (f.getType() == Random.class || Modifier.isTransient(f.getModifiers())) continue;
            f.setAccessible(true);
            Object v = value(f.getGenericType(), f.getName(), n, index, odd);
            if (v != null) f.set(o, v);
        }
        return o;
    }

    static void headers(String[] names) throws Exception {
        for (String line : names) {
            String[] part = line.trim().split(" ");
            Class<?> c = find(part[0]);
            if (c == null) continue;
            int code = Integer.parseInt(part[1]);
            for (String shape : new String[] {"full", "least", "odd"}) {
                for (SerializeType type : SerializeType.values()) {
                    if (type == SerializeType.ROCKETMQ && (code > 32767 || shape.equals("least"))) continue;
                    counter = 0;
                    CommandCustomHeader h = (CommandCustomHeader) fresh(c);
                    for (Field f : fields(c)) {
                        f.setAccessible(true);
                        boolean needed = f.isAnnotationPresent(org.apache.rocketmq.remoting.annotation.CFNotNull.class);
                        if (shape.equals("least") && !needed) continue;
                        Object v = value(f.getGenericType(), f.getName(), 1, 0, shape.equals("odd"));
                        if (f.getName().equals("commitOrRollback")) v = 8;
                        if (f.getName().equals("topicFilterType")) v = "MULTI_TAG";
                        if (v != null) f.set(h, v);
                    }
                    RemotingCommand cmd = code < 0 ? RemotingCommand.createResponseCommand(0, null) : RemotingCommand.createRequestCommand(code, h);
                    if (code < 0) {
                        Field f = RemotingCommand.class.getDeclaredField("customHeader");
                        f.setAccessible(true);
                        f.set(cmd, h);
                    }
                    frame("header", part[0] + "/" + shape + "/" + type, cmd, type, shape.equals("odd") ? "r\u00e9mark \"\u0001\u2029" : null);
                }
            }
        }
    }

    static void frame(String kind, String name, RemotingCommand cmd, SerializeType type, String remark) {
        cmd.setOpaque(name.hashCode());
        cmd.setSerializeTypeCurrentRPC(type);
        cmd.setRemark(remark);
        ByteBuffer b = cmd.encode();
        byte[] bytes = new byte[b.remaining()];
        b.get(bytes);
        put(kind, name, "bytes", bytes);
    }

    static void frames() {
        for (SerializeType type : SerializeType.values()) {
            RemotingCommand bare = RemotingCommand.createRequestCommand(206, null);
            frame("frame", "bare/" + type, bare, type, null);
            RemotingCommand body = RemotingCommand.createRequestCommand(34, null);
            body.setBody("{\"clientID\":\"c\"}".getBytes(StandardCharsets.UTF_8));
            frame("frame", "body/" + type, body, type, null);
            RemotingCommand oneway = RemotingCommand.createRequestCommand(15, null);
            oneway.addExtField("topic", "T\u4e2d");
            oneway.markOnewayRPC();
            frame("frame", "oneway/" + type, oneway, type, null);
            RemotingCommand answer = RemotingCommand.createResponseCommand(1, "x");
            frame("frame", "error/" + type, answer, type, "no \"such\"\ttopic\n\u4e2d");
            RemotingCommand empty = RemotingCommand.createResponseCommand(0, "x");
            empty.setExtFields(new HashMap<>());
            frame("frame", "empty ext/" + type, empty, type, null);
            RemotingCommand hole = RemotingCommand.createRequestCommand(17, null);
            hole.addExtField("a", "1");
            hole.addExtField("b", "");
            hole.addExtField("c", null);
            frame("frame", "null and empty ext/" + type, hole, type, null);
        }
    }

    static void tolerance(String[] lines) throws Exception {
        for (String line : lines) {
            if (line.isEmpty()) continue;
            String json = com.alibaba.fastjson.JSON.parseObject("{\"t\":" + line + "}").getString("t");
            try {
                RemotingCommand c = RemotingSerializable.decode(json.getBytes(StandardCharsets.UTF_8), RemotingCommand.class);
                if (c == null) {
                    put("tolerance", json, "accepted", false);
                    continue;
                }
                StringBuilder ext = new StringBuilder("null");
                if (c.getExtFields() != null) {
                    ext = new StringBuilder("{");
                    for (Map.Entry<String, String> e : c.getExtFields().entrySet())
                        ext.append(ext.length() > 1 ? "," : "").append(text(String.valueOf(e.getKey()))).append(':').append(e.getValue() == null ? "null" : text(e.getValue()));
                    ext.append('}');
                }
                put("tolerance", json, "accepted", true, "code", c.getCode(), "language", c.getLanguage() == null ? null : c.getLanguage().name(),
                    "version", c.getVersion(), "opaque", json.contains("opaque") ? (Object) c.getOpaque() : null, "flag", c.getFlag(), "remark", c.getRemark(), "ext", ext);
            } catch (Throwable t) {
                put("tolerance", json, "accepted", false);
            }
        }
    }

    static void bodies(String[] names) throws Exception {
        for (String name : names) {
            Class<?> c = find(name.trim());
            if (c == null) continue;
            for (int n = 0; n <= 2; n++) {
                counter = 0;
                Object o = n == 0 ? fresh(c) : fill(c, n, n == 2, 0);
                put("body", name.trim() + "/" + n, "bytes", RemotingSerializable.encode(o));
            }
        }
    }

    static void routes() throws Exception {
        Class<?> c = find("TopicRouteData");
        for (int n = 1; n <= 2; n++) {
            counter = 0;
            Object route = fill(c, n, n == 2, 0);
            put("route", "standard/" + n, "default", RemotingSerializable.encode(route), "standard", com.alibaba.fastjson.JSON.toJSONString(route,
                com.alibaba.fastjson.serializer.SerializerFeature.BrowserCompatible, com.alibaba.fastjson.serializer.SerializerFeature.QuoteFieldNames,
                com.alibaba.fastjson.serializer.SerializerFeature.SkipTransientField, com.alibaba.fastjson.serializer.SerializerFeature.MapSortField).getBytes(StandardCharsets.UTF_8));
        }
        Object body = fill(find("RegisterBrokerBody"), 2, false, 0);
        Method m = body.getClass().getMethod("encode", boolean.class);
        put("registration", "compressed", "bytes", m.invoke(body, true), "plain", m.invoke(body, false));
    }

    static void records() throws Exception {
        String[][] hosts = {{"10.0.0.9", "10.0.0.1"}, {"2001:db8::9", "10.0.0.1"}, {"10.0.0.9", "2001:db8::1"}, {"2001:db8::9", "2001:db8::1"}};
        int[] flags = {0, 2, 4, 8, 12};
        int k = 0;
        for (String[] pair : hosts) {
            for (int flag : flags) {
                for (boolean big : new boolean[] {false, true}) {
                    MessageExt m = new MessageExt();
                    m.setTopic("T" + k);
                    m.setBody(big ? "\u4e2dabc".repeat(2000).getBytes(StandardCharsets.UTF_8) : k % 3 == 0 ? new byte[0] : ("body" + k).getBytes());
                    m.setQueueId(k);
                    m.setQueueOffset(5 + k);
                    m.setCommitLogOffset(1234567890123L + k);
                    m.setFlag(-k);
                    m.setSysFlag(flag | (big ? 1 : 0));
                    m.setBornTimestamp(1700000000000L + k);
                    m.setStoreTimestamp(1700000000001L + k);
                    m.setBornHost(new InetSocketAddress(InetAddress.getByName(pair[0]), 5555));
                    m.setStoreHost(new InetSocketAddress(InetAddress.getByName(pair[1]), 10911));
                    if (pair[0].contains(":")) m.setBornHostV6Flag();
                    if (pair[1].contains(":")) m.setStoreHostAddressV6Flag();
                    m.setReconsumeTimes(k);
                    m.setPreparedTransactionOffset(99L + k);
                    m.setBodyCRC(UtilAll.crc32(m.getBody()));
                    MessageAccessor.putProperty(m, "KEYS", "k" + k);
                    MessageAccessor.putProperty(m, "TAGS", "Tag\u4e2d");
                    MessageAccessor.putProperty(m, "UNIQ_KEY", "0A00000900014D2A0000000000010001");
                    byte[] bytes = MessageDecoder.encode(m, big);
                    MessageExt back = MessageDecoder.decode(ByteBuffer.wrap(bytes));
                    put("record", "record/" + k, "bytes", bytes, "topic", back.getTopic(), "queueId", back.getQueueId(), "queueOffset", back.getQueueOffset(),
                        "physicalOffset", back.getCommitLogOffset(), "flag", back.getFlag(), "sysFlag", m.getSysFlag(), "born", back.getBornTimestamp(), "store", back.getStoreTimestamp(),
                        "bornHost", ((InetSocketAddress) back.getBornHost()).getAddress().getHostAddress(), "storeHost", ((InetSocketAddress) back.getStoreHost()).getAddress().getHostAddress(),
                        "reconsume", back.getReconsumeTimes(), "prepared", back.getPreparedTransactionOffset(), "bodySize", back.getBody() == null ? 0 : back.getBody().length, "bodyCrc", back.getBody() == null ? 0 : UtilAll.crc32(back.getBody()), "msgId", back.getMsgId(),
                        "tags", back.getTags(), "keys", back.getKeys());
                    k++;
                }
            }
        }
        if (release.startsWith("5")) {
            MessageExt m = new MessageExt();
            m.setTopic("L");
            m.setBody("v2".getBytes());
            m.setBornHost(new InetSocketAddress(InetAddress.getByName("10.0.0.9"), 5555));
            m.setStoreHost(new InetSocketAddress(InetAddress.getByName("10.0.0.1"), 10911));
            MessageAccessor.putProperty(m, "KEYS", "k");
            // The library writes V1 only; the same record with a long topic, as V2, is read back by it.
            byte[] v1 = MessageDecoder.encode(m, false);
            byte[] topic = "L".repeat(200).getBytes();
            ByteBuffer v2 = ByteBuffer.allocate(v1.length + 200);
            int topicAt = 4 + 4 + 4 + 4 + 4 + 8 + 8 + 4 + 8 + 8 + 8 + 8 + 4 + 8 + 4 + 2;
            v2.put(v1, 0, topicAt).putShort((short) topic.length).put(topic).put(v1, topicAt + 2, v1.length - topicAt - 2);
            v2.putInt(0, v2.capacity()).putInt(4, 0xDAA320AB);
            MessageExt back = MessageDecoder.decode(ByteBuffer.wrap(v2.array()));
            put("record2", "V2", "bytes", v2.array(), "topic", back.getTopic(), "body", back.getBody(), "keys", back.getKeys());
        }
    }

    static void batches() throws Exception {
        List<Message> list = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            Message m = new Message("T", i == 1 ? null : "Tag" + i, "key" + i, i, i == 2 ? new byte[0] : ("body\u4e2d" + i).getBytes(StandardCharsets.UTF_8), i % 2 == 0);
            put("batch item", "item/" + i, "bytes", MessageDecoder.encodeMessage(m), "flag", i, "body", m.getBody(), "properties", MessageDecoder.messageProperties2String(m.getProperties()));
            list.add(m);
        }
        put("batch", "three", "bytes", MessageDecoder.encodeMessages(list), "count", list.size());
    }

    static void properties() {
        String[] texts = {"", "a\u0001b", "a\u0001b\u0002", "a\u0001b\u0002c\u0001d", "a\u0001\u0002b\u0001x", "\u0001v\u0002b\u0001x", "a\u0002b\u0001x", "a\u0001b\u0001c\u0002d\u0001e",
            "a\u00011\u0002a\u00012", "\u0002\u0002a\u00011\u0002\u0002", "\u4e2d\u0001\u6587\u0002", "a", "\u0001", "a\u0001"};
        for (String s : texts) {
            StringBuilder b = new StringBuilder("{");
            for (Map.Entry<String, String> e : new TreeMap<>(MessageDecoder.string2messageProperties(s)).entrySet())
                b.append(b.length() > 1 ? "," : "").append(text(e.getKey())).append(':').append(text(e.getValue()));
            put("properties", s, "read", b.append('}'));
        }
        Map<String, String> map = new LinkedHashMap<>();
        map.put("KEYS", "k1 k2");
        map.put("\u4e2d", "\u6587");
        map.put("empty", "");
        map.put("null", null);
        map.put("last", "x\u0001y");
        put("properties written", "linked", "text", MessageDecoder.messageProperties2String(map));
    }

    static void ids() throws Exception {
        for (String host : new String[] {"10.0.0.1", "255.255.255.255", "2001:db8::1", "::1"}) {
            for (long offset : new long[] {0, 1234, Long.MAX_VALUE}) {
                InetSocketAddress a = new InetSocketAddress(InetAddress.getByName(host), 10911);
                String id = MessageDecoder.createMessageId(a, offset);
                MessageId back = MessageDecoder.decodeMessageId(id);
                put("offset id", host + "@" + offset, "id", id, "host", host, "port", ((InetSocketAddress) back.getAddress()).getPort(), "offset", back.getOffset());
            }
        }
        String uniq = MessageClientIDSetter.createUniqID();
        put("unique id", uniq, "time", MessageClientIDSetter.getNearlyTimeFromID(uniq).getTime(), "pid", MessageClientIDSetter.getPidFromID(uniq), "ip", MessageClientIDSetter.getIPStrFromID(uniq), "made", System.currentTimeMillis(), "zone", TimeZone.getDefault().getID());
        String next = MessageClientIDSetter.createUniqID();
        put("unique ids", uniq, "next", next);
    }

    static void hashes() {
        String[] texts = {"", "a", "TagA", "ZZZZZZZZ", "\u4e2d", "\u4e2d\u6587\u6807\u7b7e", "\ud83d\ude00", "x".repeat(1000), "\u00e9".repeat(700), "TopicTest#key-1"};
        for (String s : texts) put("hash", s, "hash", s.hashCode());
        for (String s : new String[] {"", "hi", "\u4e2d\u6587"}) put("crc", s, "crc", UtilAll.crc32(s.getBytes(StandardCharsets.UTF_8)));
    }

    static void subscriptions() throws Exception {
        Class<?> api = find("FilterAPI");
        String[][] all = {{"T", null}, {"T", ""}, {"T", "*"}, {"T", "A"}, {"T", "A||B"}, {"T", " A || B ||"}, {"%RETRY%g", "*"}, {"T", "\u4e2d"}};
        for (String[] s : all) {
            Object data = null;
            for (Method m : api.getMethods()) {
                if (!m.getName().equals("buildSubscriptionData")) continue;
                if (m.getParameterCount() == 2) data = m.invoke(null, s[0], s[1]);
                else if (m.getParameterCount() == 3 && m.getParameterTypes()[0] == String.class && release.startsWith("4.9")) data = m.invoke(null, "g", s[0], s[1]);
                if (data != null) break;
            }
            data.getClass().getMethod("setSubVersion", long.class).invoke(data, 1700000000000L);
            put("subscription", s[0] + " " + s[1], "topic", s[0], "expression", s[1], "bytes", RemotingSerializable.encode(data));
        }
    }

    static void compressed() throws Exception {
        byte[] plain = "RocketMQ \u4e2d\u6587 ".repeat(1000).getBytes(StandardCharsets.UTF_8);
        put("compressed", "plain", "flag", 0, "bytes", plain);
        Class<?> types = null, factory = null;
        try {
            types = Class.forName("org.apache.rocketmq.common.compression.CompressionType");
            factory = Class.forName("org.apache.rocketmq.common.compression.CompressorFactory");
        } catch (ClassNotFoundException e) {
            put("compressed", "zlib", "flag", 1, "bytes", UtilAll.compress(plain, 5));
            return;
        }
        for (Object type : types.getEnumConstants()) {
            Object compressor = factory.getMethod("getCompressor", types).invoke(null, type);
            Method m = compressor.getClass().getMethod("compress", byte[].class, int.class);
            m.setAccessible(true);
            int flag = 1 | (Integer) types.getMethod("getCompressionFlag").invoke(type);
            put("compressed", type.toString(), "flag", flag, "bytes", (byte[]) m.invoke(compressor, plain, 5));
        }
    }

    static void versions() {
        StringBuilder b = new StringBuilder("{");
        for (MQVersion.Version v : MQVersion.Version.values()) b.append(b.length() > 1 ? "," : "").append(text(v.name())).append(':').append(v.ordinal());
        put("versions", "all", "table", b.append('}'));
    }

    static void texts() {
        StringBuilder b = new StringBuilder();
        for (int i = 0; i < 0x3000; i++) b.append((char) i);
        b.append("\ud83d\ude00\uffff");
        put("text", "plain", "text", b.toString(), "bytes", com.alibaba.fastjson.JSON.toJSONString(b.toString()).getBytes(StandardCharsets.UTF_8), "ascii",
            com.alibaba.fastjson.JSON.toJSONString(b.toString(), com.alibaba.fastjson.serializer.SerializerFeature.BrowserCompatible).getBytes(StandardCharsets.UTF_8));
        double[] all = {0.0, -0.0, 1, 1.5, 100, 0.001, 0.00099, 1.0E7, 9999999.5, 1.0E10, 1.234567890123E15, 2.2250738585072014E-308, 1.7976931348623157E308, 0.1, -2.5, 123456789.125};
        for (double d : all) put("double", Double.toString(d), "bits", Double.doubleToRawLongBits(d), "json", com.alibaba.fastjson.JSON.toJSONString(d));
    }

    static String[] lines(String file) throws Exception {
        return java.nio.file.Files.readAllLines(java.nio.file.Paths.get(file), StandardCharsets.UTF_8).toArray(new String[0]);
    }

    public static void main(String[] args) throws Exception {
        release = args[0];
        System.setProperty("rocketmq.remoting.version", Integer.toString(MQVersion.CURRENT_VERSION));
        System.setOut(new java.io.PrintStream(new java.io.FileOutputStream(FileDescriptorHolder.out), true, "UTF-8"));
        put("release", release, "version", MQVersion.CURRENT_VERSION);
        frames();
        headers(lines("headers.txt"));
        tolerance(lines("tolerance.txt"));
        bodies(lines("bodies.txt"));
        routes();
        records();
        batches();
        properties();
        ids();
        hashes();
        subscriptions();
        compressed();
        versions();
        texts();
        System.err.println(count + " golden lines of " + release);
        System.exit(0);
    }

    static class FileDescriptorHolder {
        static final java.io.FileDescriptor out = java.io.FileDescriptor.out;
    }
}
