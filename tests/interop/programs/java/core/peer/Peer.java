package peer;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Reads requests, runs them with this class path's client, writes answers: see ../../../README.md. */
public final class Peer {
    /** One operation: arguments in, answer out. */
    public interface Op {
        Map<String, Object> run(JSONObject arguments) throws Exception;
    }

    private static final Map<String, Op> OPS = new LinkedHashMap<>();

    private Peer() {
    }

    public static Map<String, Object> rows(List<Object[]> rows) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("rows", rows);
        return answer;
    }

    public static Map<String, Object> done() {
        return new LinkedHashMap<>();
    }

    /** Operations of classes that only some client versions can compile. */
    @SuppressWarnings("unchecked")
    private static void optional(String name) throws Exception {
        try {
            OPS.putAll((Map<String, Op>) Class.forName(name).getMethod("ops").invoke(null));
        } catch (ClassNotFoundException absent) {
            System.err.println(name + " is not offered by this client");
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err); // whatever a library prints is no answer
        OPS.putAll(Sending.ops());
        OPS.putAll(SendingOn.ops());
        OPS.putAll(Consuming.ops());
        OPS.putAll(Reading.ops());
        optional("peer.LitePulling");
        optional("peer.Administering");
        optional("peer.Delaying");
        optional("peer.Transacting");
        optional("peer.Requesting");
        OPS.put("ops", arguments -> {
            Map<String, Object> answer = done();
            answer.put("ops", new ArrayList<>(OPS.keySet()));
            return answer;
        });
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JSONObject request = JSON.parseObject(line);
            Map<String, Object> answer;
            try {
                Op op = OPS.get(request.getString("op"));
                if (op == null) {
                    throw new IllegalArgumentException("the client has no such call: " + request.getString("op"));
                }
                answer = op.run(request);
            } catch (Throwable error) {
                error.printStackTrace();
                answer = done();
                answer.put("error", error.toString());
            }
            answer.put("id", request.get("id"));
            answers.println(JSON.toJSONString(answer));
            answers.flush();
        }
        System.exit(0);
    }
}
