import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import io.a2a.client.http.A2AHttpClient;
import io.a2a.client.http.A2AHttpResponse;
import io.a2a.client.http.JdkA2AHttpClient;
import java.io.IOException;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/**
 * The SDK's own HTTP client, and a translation between A2A 1.0 and the draft of it that this SDK
 * speaks: the version of the protocol, "return immediately", the size of a page, tenants.
 */
final class Wire extends Translation implements A2AHttpClient {
    private final A2AHttpClient sdk = new JdkA2AHttpClient();
    private final String endpoint;
    /** Whether answers are translated. */
    volatile boolean translates = true;

    Wire(String endpoint) {
        this.endpoint = endpoint;
    }

    @Override
    public GetBuilder createGet() {
        return versioned(sdk.createGet());
    }

    @Override
    public DeleteBuilder createDelete() {
        return versioned(sdk.createDelete());
    }

    @Override
    public PostBuilder createPost() {
        return new Post(versioned(sdk.createPost()));
    }

    private <T extends Builder<T>> T versioned(T builder) {
        return version == null ? builder : builder.addHeader("A2A-Version", version);
    }

    /** A body as A2A 1.0 has it. */
    private static String translated(String body) {
        JsonObject whole = JsonParser.parseString(body).getAsJsonObject();
        JsonObject request = whole.getAsJsonObject("params");
        if (request != null && request.has("configuration")) {
            Faults.met("java-jsonrpc-return-immediately", !body.contains("returnImmediately"));
            JsonObject configuration = request.getAsJsonObject("configuration");
            boolean waits = configuration.has("blocking") && configuration.remove("blocking").getAsBoolean();
            configuration.addProperty("returnImmediately", !waits);
        }
        return whole.toString();
    }

    /** A post that translates its body. */
    private final class Post implements PostBuilder {
        private final PostBuilder sdk;

        Post(PostBuilder sdk) {
            this.sdk = sdk;
        }

        @Override
        public PostBuilder url(String url) {
            if (url.contains("/tenant-")) {
                Faults.met("java-jsonrpc-tenants", !url.equals(endpoint));
            }
            sdk.url(endpoint);
            return this;
        }

        @Override
        public PostBuilder addHeader(String name, String value) {
            sdk.addHeader(name, value);
            return this;
        }

        @Override
        public PostBuilder addHeaders(Map<String, String> headers) {
            sdk.addHeaders(headers);
            return this;
        }

        @Override
        public PostBuilder body(String body) {
            sdk.body(body == null || body.isEmpty() ? body : translated(body));
            return this;
        }

        @Override
        public A2AHttpResponse post() throws IOException, InterruptedException {
            A2AHttpResponse answer = sdk.post();
            return translates ? new Answer(answer) : answer;
        }

        @Override
        public CompletableFuture<Void> postAsyncSSE(
                Consumer<String> message, Consumer<Throwable> error, Runnable complete)
                throws IOException, InterruptedException {
            return sdk.postAsyncSSE(message, error, complete);
        }
    }

    /** An answer whose page size is the number of its tasks, as the draft had it. */
    private record Answer(A2AHttpResponse sdk) implements A2AHttpResponse {
        @Override
        public int status() {
            return sdk.status();
        }

        @Override
        public boolean success() {
            return sdk.success();
        }

        @Override
        public String body() {
            JsonObject whole = JsonParser.parseString(sdk.body()).getAsJsonObject();
            JsonObject result = whole.getAsJsonObject("result");
            if (result != null && result.has("tasks")) {
                result.addProperty("pageSize", result.getAsJsonArray("tasks").size());
            }
            return whole.toString();
        }
    }
}
