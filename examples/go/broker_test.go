// A broker for tests, to copy.
package orders

import (
	"bufio"
	"encoding/json"
	"net"
	"os/exec"
	"strings"
	"testing"
)

// startBroker runs lockstep-broker on free ports, with more options, until the test ends; it returns its addresses by name.
func startBroker(t *testing.T, options ...string) map[string]string {
	command := exec.Command("lockstep-broker", append([]string{"--port", "0", "--name-server-port", "0",
		"--control-port", "0", "--end-with-stdin", "--log-level", "warning"}, options...)...)
	stdin, _ := command.StdinPipe()
	stdout, _ := command.StdoutPipe()
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); command.Wait() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal("the broker did not start")
	}
	addresses := map[string]string{}
	for _, word := range strings.Fields(line)[1:] {
		name, address, _ := strings.Cut(word, "=")
		addresses[name] = address
	}
	return addresses
}

// control makes one call of the control port, for example {"call": "advance", "seconds": 61}.
func control(t *testing.T, address string, call map[string]any) any {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	json.NewEncoder(connection).Encode(call)
	var answer struct {
		Ok     bool
		Result any
		Error  string
	}
	if err := json.NewDecoder(connection).Decode(&answer); err != nil || !answer.Ok {
		t.Fatal(err, answer.Error)
	}
	return answer.Result
}
