package wire

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

// texts are one message of each type, written by hand with every field.
var texts = []struct {
	from Side
	text string
	m    Message
}{
	{Client, `{"type":"open","sid":1,"model":"spotter","codec":"jpeg","width":640,"height":480,` +
		`"policy":{"mode":"latest","max_age_ms":500,"deadline_ms":200,"max_fps":12.5,"window":4},` +
		`"outputs":"binary","stateful":true,"params":{"a":"x","b":true,"f":1.0,"n":-2},"rules":{"lines":[]}}`,
		&Open{SID: 1, Model: "spotter", Codec: "jpeg", Width: 640, Height: 480,
			Policy:  Policy{"latest", 500, 200, 12.5, 4},
			Outputs: "binary", Stateful: true, Params: Params{"a": "x", "b": true, "f": 1.0, "n": int64(-2)},
			Rules: json.RawMessage(`{"lines":[]}`)}},
	{Client, `{"type":"update","sid":2,"policy":{"max_fps":0.001},"outputs":"none","params":{"k":1}}`,
		&Update{SID: 2, Policy: PolicyChange{MaxFPS: new(0.001)}, Outputs: "none", Params: Params{"k": int64(1)}}},
	{Client, `{"type":"update","sid":2,"policy":{"max_age_ms":0,"deadline_ms":7,"max_fps":0,"window":0},"params":{}}`,
		&Update{SID: 2, Policy: PolicyChange{"", new(0), new(7), new(0.0), new(0)}, Params: Params{}}},
	{Client, `{"type":"pause","sid":3}`, &Pause{3}},
	{Client, `{"type":"resume","sid":4294967295}`, &Resume{math.MaxUint32}},
	{Client, `{"type":"flush","sid":0}`, &Flush{0}},
	{Client, `{"type":"close","sid":5}`, &Close{5}},
	{Client, `{"type":"ping","t":-9223372036854775808}`, &Ping{math.MinInt64}},
	{Client, `{"type":"attach","token":"t/1","streams":[{"sid":1,"last_seq":18446744073709551615},{"sid":2}]}`,
		&Attach{"t/1", []AttachStream{{1, new(uint64(math.MaxUint64))}, {2, nil}}}},

	{Server, `{"type":"ready","session":"s","resume_token":"t","resume_ms":30000,` +
		`"limits":{"max_message":8388608,"max_text":65536,"max_streams":64,"max_window":1024}}`,
		&Ready{"s", "t", 30000, Limits{8 << 20, 64 << 10, 64, 1024}}},
	{Server, `{"type":"opened","sid":1,"credit_limit":2,"policy":{"mode":"every","window":2}}`,
		&Opened{1, 2, Policy{Mode: "every", Window: 2}}},
	{Server, `{"type":"credit","sid":1,"credit_limit":18446744073709551615}`, &Credit{1, math.MaxUint64, 0}},
	{Server, `{"type":"credit","sid":1,"credit_limit":5,"ack":3}`, &Credit{1, 5, 3}},
	{Server, `{"type":"result","sid":1,"seq":7,"ack":8,"credit_limit":12,"capture_us":-3,"model":"m",` +
		`"version":"1\"x","batch":3,"width":640,"height":480,"partial":true,` +
		`"traceresponse":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",` +
		`"timing":{"received_us":10,"queue_us":11,"prepare_us":12,"run_us":13,"total_us":14},` +
		`"outputs":[{"name":"y"}],"parameters":{"p":1}}`,
		&Result{1, 7, 8, 12, -3, "m", `1"x`, 3, 640, 480, true, Timing{10, 11, 12, 13, 14}, traceparent,
			[]byte(`[{"name":"y"}]`), []byte(`{"p":1}`)}},
	{Server, `{"type":"drop","sid":1,"seqs":[[3,5],[7,7],[9,18446744073709551615]],"reason":"superseded","ack":9,` +
		`"credit_limit":11}`,
		&Drop{1, []Range{{3, 5}, {7, 7}, {9, math.MaxUint64}}, "superseded", 9, 11}},
	{Server, `{"type":"advise","sid":1,"fps":7.5,"width":320,"height":240,"quality":60,"keyframe":true}`,
		&Advise{1, 7.5, 320, 240, 60, true}},
	{Server, `{"type":"stats","sid":1,"counts":{"accepted":10,"results":6,"drops":3,"errors":1},"waiting":1,` +
		`"fps":29.97,"age_us":4000}`,
		&Stats{1, Counts{0, 10, 6, 3, 1}, 1, 29.97, 4000}},
	{Server, `{"type":"error","code":"flow_control","message":"more \u003c ` +
		`than","retryable":true,"retry_after_ms":20,"sid":0,"seq":0,"ack":1,"credit_limit":3,` +
		`"traceresponse":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","fatal":true}`,
		&ErrorMessage{"flow_control", "more < than", true, 20, new(uint32), new(uint64), 1, 3, traceparent, true}},
	{Server, `{"type":"goaway","time_left_ms":5000}`, &GoAway{5000}},
	{Server, `{"type":"pong","t":5,"server_t":1700000000000000}`, &Pong{5, 1700000000000000}},
	{Server, `{"type":"closed","sid":1,"reason":"client","totals":{"received":11,"accepted":10,"results":6,` +
		`"drops":3,"errors":1}}`,
		&Closed{1, "client", Counts{11, 10, 6, 3, 1}}},
	{Server, `{"type":"attached","session":"s","resume_token":"t2","resume_ms":30000,` +
		`"streams":[{"sid":1,"received_count":10,"received_seq":9,"credit_limit":12}]}`,
		&Attached{"s", "t2", 30000, []AttachedStream{{1, 10, new(uint64(9)), 12}}}},
}

func TestGoldenTexts(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range texts {
		seen[c.m.Type()] = true
		m, err := ParseControl([]byte(c.text), c.from)
		if err != nil || !reflect.DeepEqual(m, c.m) {
			t.Errorf("%s\nis read as %+v, %v", c.text, m, err)
		}
		out, err := AppendControl([]byte("x"), c.m)
		want := "x" + strings.ReplaceAll(c.text, `\u003c`, "<")
		if err != nil || string(out) != want {
			t.Errorf("written as\n%s, %v\nwant\n%s", out, err, want)
		}
		if other, err := ParseControl([]byte(c.text), Client+Server-c.from); err == nil {
			t.Errorf("%+v is taken from the wrong side", other)
		}
	}
	if len(seen) != len(fromClient)+len(fromServer) {
		t.Errorf("%d of %d types have a message here", len(seen), len(fromClient)+len(fromServer))
	}
}

// TestTags compares the texts written by hand with the fields' tags.
func TestTags(t *testing.T) {
	for _, c := range texts {
		out, err := json.Marshal(c.m)
		if err != nil {
			t.Fatal(err)
		}
		var byTag, byHand map[string]any
		if json.Unmarshal(out, &byTag) != nil || json.Unmarshal([]byte(c.text), &byHand) != nil {
			t.Fatal(c.text)
		}
		delete(byHand, "type")
		if !reflect.DeepEqual(byTag, byHand) {
			t.Errorf("%s: tags say\n%v\nthe text is\n%v", c.m.Type(), byTag, byHand)
		}
	}
}

// TestLeastMessages: optional fields may be left out, and Append functions leave them out.
func TestLeastMessages(t *testing.T) {
	for _, c := range []struct {
		from Side
		text string
	}{
		{Client, `{"type":"open","sid":1}`},
		{Client, `{"type":"update","sid":1}`},
		{Client, `{"type":"attach","token":"t"}`},
		{Server, `{"type":"ready","session":"s"}`},
		{Server, `{"type":"result","sid":1,"seq":0,"ack":1}`},
		{Server, `{"type":"result","sid":1,"seq":0,"ack":1,"timing":{"total_us":1}}`},
		{Server, `{"type":"advise","sid":1}`},
		{Server, `{"type":"error","code":"internal","message":""}`},
		{Server, `{"type":"attached","session":"s","resume_token":"t"}`},
	} {
		m, err := ParseControl([]byte(c.text), c.from)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if out, err := AppendControl(nil, m); err != nil || string(out) != c.text {
			t.Errorf("%s is written as %s, %v", c.text, out, err)
		}
	}
}

func TestTolerated(t *testing.T) {
	for _, text := range []string{
		" \t\r\n{ \"type\" :\n\"pause\" , \"sid\" : 7 } \n",
		`{"sid":7,"type":"pause"}`,
		`{"\u0074ype":"\u0070ause","s\u0069d":7}`,
		`{"type":"pause","sid":7,"later":{"sid":"x","type":[{}]},"later":null,"SID":"x","Type":1}`,
		`{"a":"}","b":"\"]}","c":"\\","d":[[],[{"e":"]"}]],"type":"pause","f":-1e5,"sid":7,"g":true}`,
	} {
		m, err := ParseControl([]byte(text), Client)
		if p, ok := m.(*Pause); err != nil || !ok || p.SID != 7 {
			t.Errorf("%s: %v, %v", text, m, err)
		}
	}
}

func TestBrokenTexts(t *testing.T) {
	deep := func(n int) string {
		return `{"type":"pause","sid":1,"x":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`
	}
	long := func(n int) string { return `{"type":"pause","sid":1}` + strings.Repeat(" ", n-24) }
	for name, c := range map[string]struct {
		text  string
		rule  error
		code  string
		fatal bool
	}{
		"empty":         {"", ErrSyntax, "invalid_argument", true},
		"no object":     {`["type"]`, ErrSyntax, "invalid_argument", true},
		"a word":        {`null`, ErrSyntax, "invalid_argument", true},
		"early end":     {`{"type":"pause","sid":1`, ErrSyntax, "invalid_argument", true},
		"early string":  {`{"type":"pau\`, ErrSyntax, "invalid_argument", true},
		"more behind":   {`{"type":"pause","sid":1}{}`, ErrSyntax, "invalid_argument", true},
		"comma":         {`{"type":"pause","sid":1,}`, ErrSyntax, "invalid_argument", true},
		"leading zero":  {`{"type":"pause","sid":01}`, ErrSyntax, "invalid_argument", true},
		"not UTF-8":     {"{\"type\":\"pause\",\"sid\":1,\"x\":\"\xff\"}", ErrSyntax, "invalid_argument", true},
		"too long":      {long(MaxText + 1), ErrTextSize, "too_large", false},
		"too deep":      {deep(MaxDepth), ErrTextDepth, "invalid_argument", false},
		"far too deep":  {deep(20000), ErrTextDepth, "invalid_argument", false},
		"deep and open": {strings.Repeat(`{"a":`, 10000), ErrTextDepth, "invalid_argument", false},
	} {
		m, err := ParseControl([]byte(c.text), Client)
		refusal(t, name, err, c.rule, c.code, "")
		var e *Error
		if m != nil || !errors.As(err, &e) || e.Fatal != c.fatal {
			t.Errorf("%s: %v, %+v", name, m, e)
		}
	}
	for _, text := range []string{long(MaxText), deep(MaxDepth - 1), `{"type":"pause","sid":1,"x":"` +
		strings.Repeat("[", 100) + `"}`} {
		if _, err := ParseControl([]byte(text), Client); err != nil {
			t.Errorf("%.40s...: %v", text, err)
		}
	}
}

// TestEveryRuleOfControl breaks each rule of each field once.
func TestEveryRuleOfControl(t *testing.T) {
	open := func(members string) string { return `{"type":"open","sid":9,` + members + `}` }
	policy := func(members string) string { return open(`"policy":{` + members + `}`) }
	many := strings.Builder{}
	for i := range MaxParams + 1 {
		if i > 0 {
			many.WriteByte(',')
		}
		many.WriteString(`"k` + string(rune('0'+i/10)) + string(rune('0'+i%10)) + `":1`)
	}
	for _, c := range []struct {
		from  Side
		text  string
		rule  error
		field string
	}{
		{Client, `{}`, ErrMissing, "type"},
		{Client, `{"Type":"pause","sid":1}`, ErrMissing, "type"},
		{Client, `{"type":1}`, ErrValue, "type"},
		{Client, `{"type":null}`, ErrValue, "type"},
		{Client, `{"type":""}`, ErrValue, "type"},
		{Client, `{"type":"pause","type":"pause","sid":1}`, ErrTwice, "type"},

		{Client, `{"type":"open"}`, ErrMissing, "open.sid"},
		{Client, `{"type":"open","SID":1}`, ErrMissing, "open.sid"},
		{Client, `{"type":"update"}`, ErrMissing, "update.sid"},
		{Client, `{"type":"pause"}`, ErrMissing, "pause.sid"},
		{Client, `{"type":"resume"}`, ErrMissing, "resume.sid"},
		{Client, `{"type":"flush"}`, ErrMissing, "flush.sid"},
		{Client, `{"type":"close"}`, ErrMissing, "close.sid"},
		{Client, `{"type":"pause","sid":1,"sid":1}`, ErrTwice, "pause.sid"},
		{Client, `{"type":"pause","sid":1,"s\u0069d":2}`, ErrTwice, "pause.sid"},
		{Client, `{"type":"pause","sid":4294967296}`, ErrValue, "pause.sid"},
		{Client, `{"type":"pause","sid":99999999999999999999}`, ErrValue, "pause.sid"},
		{Client, `{"type":"pause","sid":-1}`, ErrValue, "pause.sid"},
		{Client, `{"type":"pause","sid":-0}`, ErrValue, "pause.sid"},
		{Client, `{"type":"pause","sid":1.0}`, ErrValue, "pause.sid"},
		{Client, `{"type":"pause","sid":1e0}`, ErrValue, "pause.sid"},
		{Client, `{"type":"pause","sid":"1"}`, ErrValue, "pause.sid"},
		{Client, `{"type":"pause","sid":null}`, ErrValue, "pause.sid"},
		{Client, `{"type":"pause","sid":[1]}`, ErrValue, "pause.sid"},
		{Client, `{"type":"pause","sid":{}}`, ErrValue, "pause.sid"},
		{Client, `{"type":"pause","sid":true}`, ErrValue, "pause.sid"},

		{Client, open(`"model":7`), ErrValue, "open.model"},
		{Client, open(`"model":"` + strings.Repeat("m", MaxName+1) + `"`), ErrValue, "open.model"},
		{Client, open(`"codec":"jpg"`), ErrValue, "open.codec"},
		{Client, open(`"codec":1`), ErrValue, "open.codec"},
		{Client, open(`"width":65536,"height":1`), ErrValue, "open.width"},
		{Client, open(`"width":1,"height":65536`), ErrValue, "open.height"},
		{Client, open(`"width":640`), ErrValue, "open.width"},
		{Client, open(`"height":480`), ErrValue, "open.width"},
		{Client, open(`"policy":"latest"`), ErrValue, "open.policy"},
		{Client, open(`"policy":null`), ErrValue, "open.policy"},
		{Client, open(`"policy":{},"policy":{}`), ErrTwice, "open.policy"},
		{Client, policy(`"mode":"newest"`), ErrValue, "open.policy.mode"},
		{Client, policy(`"mode":""`), ErrValue, "open.policy.mode"},
		{Client, policy(`"mode":"every","mode":"every"`), ErrTwice, "open.policy.mode"},
		{Client, policy(`"max_age_ms":3600001`), ErrValue, "open.policy.max_age_ms"},
		{Client, policy(`"max_age_ms":0.5`), ErrValue, "open.policy.max_age_ms"},
		{Client, policy(`"deadline_ms":3600001`), ErrValue, "open.policy.deadline_ms"},
		{Client, policy(`"deadline_ms":-1`), ErrValue, "open.policy.deadline_ms"},
		{Client, policy(`"max_fps":0.0009`), ErrValue, "open.policy.max_fps"},
		{Client, policy(`"max_fps":1000001`), ErrValue, "open.policy.max_fps"},
		{Client, policy(`"max_fps":1e999`), ErrValue, "open.policy.max_fps"},
		{Client, policy(`"max_fps":-1`), ErrValue, "open.policy.max_fps"},
		{Client, policy(`"max_fps":"30"`), ErrValue, "open.policy.max_fps"},
		{Client, policy(`"max_fps":null`), ErrValue, "open.policy.max_fps"},
		{Client, policy(`"window":1025`), ErrValue, "open.policy.window"},
		{Client, policy(`"window":1.5`), ErrValue, "open.policy.window"},
		{Client, open(`"outputs":"text"`), ErrValue, "open.outputs"},
		{Client, open(`"stateful":1`), ErrValue, "open.stateful"},
		{Client, open(`"stateful":"true"`), ErrValue, "open.stateful"},
		{Client, open(`"rules":[]`), ErrValue, "open.rules"},
		{Client, open(`"params":[]`), ErrValue, "open.params"},
		{Client, open(`"params":{"":1}`), ErrValue, "open.params"},
		{Client, open(`"params":{"` + strings.Repeat("k", MaxName+1) + `":1}`), ErrValue, "open.params"},
		{Client, open(`"params":{` + many.String() + `}`), ErrValue, "open.params"},
		{Client, open(`"params":{"a":{}}`), ErrValue, "open.params.a"},
		{Client, open(`"params":{"a":[1]}`), ErrValue, "open.params.a"},
		{Client, open(`"params":{"a":null}`), ErrValue, "open.params.a"},
		{Client, open(`"params":{"a":9223372036854775808}`), ErrValue, "open.params.a"},
		{Client, open(`"params":{"a":1e999}`), ErrValue, "open.params.a"},
		{Client, open(`"params":{"a":1,"\u0061":2}`), ErrTwice, "open.params.a"},
		{Client, `{"type":"update","sid":9,"policy":{"window":1025}}`, ErrValue, "update.policy.window"},
		{Client, `{"type":"update","sid":9,"outputs":""}`, ErrValue, "update.outputs"},
		{Client, `{"type":"update","sid":9,"params":{"a":null}}`, ErrValue, "update.params.a"},
		{Client, `{"type":"ping"}`, ErrMissing, "ping.t"},
		{Client, `{"type":"ping","t":1.5}`, ErrValue, "ping.t"},
		{Client, `{"type":"ping","t":9223372036854775808}`, ErrValue, "ping.t"},
		{Client, `{"type":"attach"}`, ErrMissing, "attach.token"},
		{Client, `{"type":"attach","token":""}`, ErrValue, "attach.token"},
		{Client, `{"type":"attach","token":"` + strings.Repeat("t", MaxToken+1) + `"}`, ErrValue, "attach.token"},
		{Client, `{"type":"attach","token":"t","streams":{}}`, ErrValue, "attach.streams"},
		{Client, `{"type":"attach","token":"t","streams":[{"sid":1},2]}`, ErrValue, "attach.streams[1]"},
		{Client, `{"type":"attach","token":"t","streams":[{"sid":1},{}]}`, ErrMissing, "attach.streams[1].sid"},
		{Client, `{"type":"attach","token":"t","streams":[{"sid":1},{"sid":1}]}`, ErrTwice, "attach.streams[1].sid"},
		{Client, `{"type":"attach","token":"t","streams":[{"sid":1,"last_seq":-1}]}`, ErrValue,
			"attach.streams[0].last_seq"},
		{Client, `{"type":"attach","token":"t","streams":[{"sid":1,"last_seq":18446744073709551616}]}`, ErrValue,
			"attach.streams[0].last_seq"},

		{Server, `{"type":"ready"}`, ErrMissing, "ready.session"},
		{Server, `{"type":"ready","session":"s","resume_ms":-1}`, ErrValue, "ready.resume_ms"},
		{Server, `{"type":"ready","session":"s","limits":{"max_message":"8M"}}`, ErrValue, "ready.limits.max_message"},
		{Server, `{"type":"opened","sid":1}`, ErrMissing, "opened.credit_limit"},
		{Server, `{"type":"credit","sid":1,"credit_limit":-1}`, ErrValue, "credit.credit_limit"},
		{Server, `{"type":"result","sid":1,"seq":0}`, ErrMissing, "result.ack"},
		{Server, `{"type":"result","sid":1,"seq":0,"ack":1,"batch":"x"}`, ErrValue, "result.batch"},
		{Server, `{"type":"result","sid":1,"seq":0,"ack":1,"timing":{"run_us":1.5}}`, ErrValue, "result.timing.run_us"},
		{Server, `{"type":"result","sid":1,"seq":0,"ack":1,"outputs":{}}`, ErrValue, "result.outputs"},
		{Server, `{"type":"result","sid":1,"seq":0,"ack":1,"parameters":[]}`, ErrValue, "result.parameters"},
		{Server, `{"type":"drop","sid":1,"seqs":[],"reason":"stale"}`, ErrValue, "drop.seqs"},
		{Server, `{"type":"drop","sid":1,"seqs":[3],"reason":"stale"}`, ErrValue, "drop.seqs[0]"},
		{Server, `{"type":"drop","sid":1,"seqs":[[3]],"reason":"stale"}`, ErrValue, "drop.seqs[0]"},
		{Server, `{"type":"drop","sid":1,"seqs":[[3,4,5]],"reason":"stale"}`, ErrValue, "drop.seqs[0]"},
		{Server, `{"type":"drop","sid":1,"seqs":[[3,2]],"reason":"stale"}`, ErrValue, "drop.seqs[0]"},
		{Server, `{"type":"drop","sid":1,"seqs":[[3,4],[4,5]],"reason":"stale"}`, ErrValue, "drop.seqs[1]"},
		{Server, `{"type":"drop","sid":1,"seqs":[[3,"4"]],"reason":"stale"}`, ErrValue, "drop.seqs[0][1]"},
		{Server, `{"type":"drop","sid":1,"seqs":[[3,4]]}`, ErrMissing, "drop.reason"},
		{Server, `{"type":"advise","sid":1,"quality":101}`, ErrValue, "advise.quality"},
		{Server, `{"type":"advise","sid":1,"keyframe":0}`, ErrValue, "advise.keyframe"},
		{Server, `{"type":"stats","sid":1,"counts":{"accepted":1}}`, ErrMissing, "stats.counts.results"},
		{Server, `{"type":"stats","sid":1}`, ErrMissing, "stats.counts"},
		{Server, `{"type":"error","message":"m"}`, ErrMissing, "error.code"},
		{Server, `{"type":"error","code":"internal"}`, ErrMissing, "error.message"},
		{Server, `{"type":"error","code":"internal","message":"m","sid":null}`, ErrValue, "error.sid"},
		{Server, `{"type":"error","code":"internal","message":"m","seq":-1}`, ErrValue, "error.seq"},
		{Server, `{"type":"goaway"}`, ErrMissing, "goaway.time_left_ms"},
		{Server, `{"type":"pong","t":1}`, ErrMissing, "pong.server_t"},
		{Server, `{"type":"closed","sid":1,"totals":{}}`, ErrMissing, "closed.totals.accepted"},
		{Server, `{"type":"closed","sid":1,"reason":"","totals":{}}`, ErrValue, "closed.reason"},
		{Server, `{"type":"attached","session":"s"}`, ErrMissing, "attached.resume_token"},
		{Server, `{"type":"attached","session":"s","resume_token":"t","streams":[{"sid":1}]}`, ErrMissing,
			"attached.streams[0].received_count"},
	} {
		m, err := ParseControl([]byte(c.text), c.from)
		if m != nil {
			t.Errorf("%s: %+v comes with the error", c.text, m)
		}
		refusal(t, c.text, err, c.rule, "invalid_argument", c.field)
		sound(t, err)
		var e *Error
		if errors.As(err, &e); e != nil && strings.Contains(c.text, `"sid":9,`) && (e.SID == nil || *e.SID != 9) {
			t.Errorf("%s: the stream is not named: %+v", c.text, e)
		}
	}
	_, err := ParseControl([]byte(`{"type":"rewind","sid":9}`), Client)
	refusal(t, "unknown type", err, ErrType, "unsupported", "type")
	if want :=
		`type: "rewind" is unknown: want one of attach, close, flush, open, pause, ping, resume, update`; err.Error() != want {
		t.Errorf("%v", err)
	}
	_, err = ParseControl([]byte(policy(`"mode":"newest"`)), Client)
	if want := `open.policy.mode: is "newest": want one of latest, every`; err.Error() != want {
		t.Errorf("%v", err)
	}
}

func TestParams(t *testing.T) {
	p, err := ParseParams([]byte(` {"s":"\u00e9","i":-7,"f":7.0,"e":1e3,"b":false} `))
	if want := (Params{"s": "é", "i": int64(-7), "f": 7.0, "e": 1000.0, "b": false}); err != nil ||
		!reflect.DeepEqual(p, want) {
		t.Fatalf("%v, %v", p, err)
	}
	for text, c := range map[string]struct {
		rule  error
		field string
	}{
		`{"a":}`:      {ErrSyntax, "params"},
		`[]`:          {ErrSyntax, "params"},
		`{"a":[]}`:    {ErrValue, "params.a"},
		`{"":1}`:      {ErrValue, "params"},
		`{"a":12e-x}`: {ErrSyntax, "params"},
	} {
		_, err := ParseParams([]byte(text))
		refusal(t, text, err, c.rule, "invalid_argument", c.field)
		var e *Error
		if errors.As(err, &e); e == nil || e.Fatal {
			t.Errorf("%s: %+v", text, e)
		}
	}
	for _, p := range []Params{{"a": math.NaN()}, {"a": math.Inf(1)}, {"a": []int{1}}, {"a": nil}} {
		if out, err := AppendControl([]byte("x"), &Open{Params: p}); err == nil ||
			!strings.Contains(err.Error(), "params.a: ") || string(out) != "x" {
			t.Errorf("%v: %s, %v", p, out, err)
		}
	}
	if out, err := AppendControl(nil, &Open{Params: Params{"n": 5}}); err != nil ||
		string(out) != `{"type":"open","sid":0,"params":{"n":5}}` {
		t.Errorf("%s, %v", out, err)
	}
}
