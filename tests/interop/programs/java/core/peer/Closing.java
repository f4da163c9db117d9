package peer;

/** Shuts producers and readers down beside the requests: a 5.x client waits up to three seconds for its own threads. */
public final class Closing {
    private Closing() {
    }

    public static void later(Runnable shutdown) {
        Thread thread = new Thread(shutdown, "closing");
        thread.setDaemon(true);
        thread.start();
    }
}
