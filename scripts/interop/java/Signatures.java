import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Signs with RocketMQ's own hook: each line of stdin is a request as JSON; its signature is an event. */
public final class Signatures {
    private Signatures() {}

    public static void main(String[] argv) throws IOException {
        Events.print("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JSONObject given = JSON.parseObject(line);
            RemotingCommand request = RemotingCommand.createRequestCommand(given.getIntValue("code"), null);
            HashMap<String, String> fields = new HashMap<>();
            given.getJSONObject("fields").forEach((name, value) -> fields.put(name, (String) value));
            request.setExtFields(fields);
            request.setBody(Base64.getDecoder().decode(given.getString("body")));
            String token = given.getString("token");
            SessionCredentials account = token == null
                    ? new SessionCredentials(given.getString("accessKey"), given.getString("secretKey"))
                    : new SessionCredentials(given.getString("accessKey"), given.getString("secretKey"), token);
            new AclClientRPCHook(account).doBeforeRequest("127.0.0.1:1", request);
            Events.print("signed", "signature", request.getExtFields().get("Signature"));
        }
        System.exit(0);
    }
}
