import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Runs every scenario of ../README.md with the official Java SDK.
 *
 * <p>{@code java Run BASE_URL BINDING...}
 */
public final class Run {
    private Run() {}

    private static void all(String baseUrl, String binding) throws Exception {
        String chosen = System.getenv("ONLY");
        try (Talk talk = new Talk(baseUrl, binding)) {
            for (var scenario : Scenarios.ALL.entrySet()) {
                if (chosen != null && !Arrays.asList(chosen.split(",")).contains(scenario.getKey())) {
                    continue;
                }
                try {
                    scenario.getValue().run(talk);
                } catch (Exception | AssertionError error) {
                    throw new AssertionError(binding + " " + scenario.getKey(), error);
                }
                System.out.println("ok " + binding + " " + scenario.getKey());
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        var threads = Executors.newCachedThreadPool();
        List<Future<?>> runs = new ArrayList<>();
        for (String binding : Arrays.copyOfRange(arguments, 1, arguments.length)) {
            runs.add(threads.submit(() -> {
                all(arguments[0], binding);
                return null;
            }));
        }
        int failed = 0;
        for (Future<?> run : runs) {
            try {
                run.get();
            } catch (Exception error) {
                for (Throwable cause = error.getCause(); cause != null; cause = cause.getCause()) {
                    System.err.println(cause);
                }
                failed = 1;
            }
        }
        System.exit(failed);
    }
}
