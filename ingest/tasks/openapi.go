package tasks

import (
	"millrace/internal/openapi"
	"millrace/internal/role"
	"millrace/tasks"
)

const (
	tagTasks = "tasks"
	tagWork  = "work"
)

// Routes describes the routes of the adapter. Every route has its line here.
var Routes = []openapi.Route{
	{
		Method: "POST", Path: root, Role: role.Infer, Tag: tagTasks, Limited: true, Status: 201,
		Summary: "Submit a task: an inference whose answer is kept",
		Doc: "The body is the body of a request to /v2/models/{model}/infer, with the headers Content-Type and " +
			"Inference-Header-Content-Length; or a video or a zip archive of pictures, whose result has a line of " +
			"JSON for each frame or file. With the header Idempotency-Key, a repeated submission returns the " +
			"first task.",
		Query: []openapi.Param{
			{Name: "model", Type: "string", Doc: "runs the task"},
			{Name: "version", Type: "string", Doc: "of the model"},
			{Name: "kind", Type: "string", Doc: "request, video (a video, or with the media type text/uri-list the " +
				"address of a video) or pictures (a zip archive); by the media type unless given"},
			{Name: optionAnnotate, Type: "string", Doc: "mp4: the result of a video is the video, with the results " +
				"drawn over the frames; JSON lines unless given"},
			{Name: "name", Type: "string", Doc: "of the client's file, for people"},
			{Name: "priority", Type: "integer", Doc: "-100 to 100; tasks with a higher number begin first; default 0"},
			{Name: "attempts", Type: "integer", Doc: "1 to 100; default 3"},
			{Name: "not_before", Type: "string",
				Doc: "earliest begin: a time (RFC 3339) or a duration from now such as 10m"},
			{Name: "expires", Type: "string",
				Doc: "the task expires unless it has begun: a time or a duration from now"},
			{Name: "retention", Type: "string", Doc: "from the end of the task to its deletion, such as 24h"},
			{Name: "webhook", Type: "string",
				Doc: "http or https address that gets the task by POST when the task has ended; the setting " +
					"tasks.webhooks must be on"},
		},
		Body: openapi.Raw{MediaType: "*/*", Doc: "the input"}, Answer: tasks.Task{},
	},
	{
		Method: "GET", Path: root, Role: role.Infer, Tag: tagTasks, Limited: true,
		Summary: "List tasks, the newest first",
		Query: []openapi.Param{
			{Name: "state", Type: "string", Doc: "states, separated by commas"},
			{Name: "model", Type: "string", Doc: "of this model"},
			{Name: "text", Type: "string",
				Doc: "a part of the id, of the name of the input, of the consumer or of the error"},
			{Name: "limit", Type: "integer", Doc: "1 to 1000 tasks; default 100"},
			{Name: "after", Type: "string", Doc: "next of the page before"},
		},
		Answer: listReply{},
	},
	{
		Method: "GET", Path: root + "/:id", Role: role.Infer, Tag: tagTasks, Limited: true,
		Summary: "The state of a task",
		Query: []openapi.Param{{Name: "wait", Type: "string",
			Doc: "wait for the end of the task, at most this long, such as 30s"}},
		Answer: tasks.Task{},
	},
	{
		Method: "GET", Path: root + "/:id/result", Role: role.Infer, Tag: tagTasks, Limited: true,
		Summary: "The result of a finished task", Doc: "With the header Range, a part of the result (status 206).",
		Answer: openapi.Raw{MediaType: "*/*", Doc: "the result, as the model answered"},
	},
	{
		Method: "GET", Path: root + "/:id/logs", Role: role.Infer, Tag: tagTasks, Limited: true,
		Summary: "What the model has written for people while the task ran",
		Doc: "The last MiB of the newest three attempts that wrote something. The log of each attempt but the first " +
			"begins with the line === attempt N ===.",
		Query: []openapi.Param{{Name: "follow", Type: "boolean",
			Doc: "send further bytes as they come, until the task has ended; default false"}},
		Answer: openapi.Raw{MediaType: "text/plain", Doc: "the logs"},
	},
	{
		Method: "GET", Path: root + "/:id/events", Role: role.Infer, Tag: tagTasks, Limited: true,
		Summary: "The changes of a task as server-sent events, until the task has ended",
		Answer:  openapi.Raw{MediaType: "text/event-stream"},
	},
	{
		Method: "POST", Path: root + "/:id/cancel", Role: role.Infer, Audit: true, Tag: tagTasks, Limited: true,
		Summary: "Cancel a task that has not ended", Answer: tasks.Task{},
	},
	{
		Method: "POST", Path: root + "/:id/retry", Role: role.Infer, Audit: true, Tag: tagTasks, Limited: true,
		Summary: "Queue a task again that has ended without a result", Answer: tasks.Task{},
	},
	{
		Method: "DELETE", Path: root + "/:id", Role: role.Infer, Audit: true, Tag: tagTasks, Limited: true,
		Summary: "Delete a task that does not run, with its files", Status: 204,
	},
	{
		Method: "OPTIONS", Path: uploadsRoot, Role: role.Infer, Tag: tagTasks, Limited: true, Status: 204,
		Summary: "The version, the extensions and the bound of resumable uploads",
	},
	{
		Method: "POST", Path: uploadsRoot, Role: role.Infer, Tag: tagTasks, Limited: true, Status: 201,
		Summary: "Begin a resumable upload of the input of a task (tus 1.0)",
		Doc: "The header Upload-Length has the bytes of the input. Upload-Metadata has the options of POST /v2/tasks " +
			"in Base64, and filename, filetype, header_length, idempotency_key and sha256; the query may have " +
			"options, too. Location has the upload. With the idempotency key of an earlier upload, the status is " +
			"200, and the upload is the earlier one. All requests have the header Tus-Resumable: 1.0.0.",
		Answer: uploadState{},
	},
	{
		Method: "GET", Path: uploadPath, Role: role.Infer, Tag: tagTasks, Limited: true,
		Summary: "The bytes of an upload that have arrived", Doc: "HEAD has the same headers: Upload-Offset and " +
			"Upload-Length, and Upload-Expires until all bytes have arrived. Only the client that began the upload " +
			"may use the upload.",
		Answer: uploadState{},
	},
	{
		Method: "PATCH", Path: uploadPath, Role: role.Infer, Tag: tagTasks, Limited: true, Status: 204,
		Summary: "Append bytes to an upload",
		Doc: "The header Upload-Offset has the bytes that have arrived before; another offset is refused with 409. " +
			"With the last byte, the upload becomes the task with the same id.",
		Body: openapi.Raw{MediaType: partType, Doc: "the next bytes of the input"},
	},
	{
		Method: "DELETE", Path: uploadPath, Role: role.Infer, Audit: true, Tag: tagTasks, Limited: true, Status: 204,
		Summary: "Remove an unfinished upload",
	},
	{
		Method: "POST", Path: claimsRoot, Role: role.Work, Tag: tagWork, Limited: true,
		Summary: "Claim a task, as a consumer on another host",
		Doc: "Without a task of the models, the answer is 204 after the wait. A consumer that sends no request about " +
			"the claim for the time of the lease loses the task; after the claim, the first request must follow " +
			"within 10 s.",
		Body: claimRequest{}, Answer: claimReply{},
	},
	{
		Method: "GET", Path: claimPath + "/input", Role: role.Work, Tag: tagWork, Limited: true,
		Summary: "The input of a claimed task", Doc: "With the header Range, a part of the input (status 206).",
		Answer: openapi.Raw{MediaType: "*/*", Doc: "the input, as submitted"},
	},
	{
		Method: "PUT", Path: claimPath + "/result", Role: role.Work, Tag: tagWork, Limited: true, Status: 204,
		Summary: "Store the result of a claimed task, and finish the task",
		Doc: "The header Content-Digest has the SHA-256 of the body (RFC 9530). A result of a task that is no longer " +
			"the consumer's is refused with 409. The request may be repeated.",
		Body: openapi.Raw{MediaType: "*/*", Doc: "the result"},
	},
	{
		Method: "POST", Path: claimPath + "/renew", Role: role.Work, Tag: tagWork, Limited: true, Status: 204,
		Summary: "Renew a claim",
		Doc: "The claim is renewed at once. The answer follows after the wait, or with 409 when the task is no " +
			"longer the consumer's.",
		Body: renewal{},
	},
	{
		Method: "POST", Path: claimPath + "/progress", Role: role.Work, Tag: tagWork, Limited: true, Status: 204,
		Summary: "Show the progress of a claimed task", Doc: "The claim is not renewed.", Body: tasks.Progress{},
	},
	{
		Method: "POST", Path: claimPath + "/log", Role: role.Work, Tag: tagWork, Limited: true, Status: 204,
		Summary: "Append to the log of the attempt of a claimed task",
		Doc: "The body has at most 256 KiB, and the header Upload-Offset has the offset of the body in the log. " +
			"Bytes that the log has already are left out, so that the request may be repeated.",
		Body: openapi.Raw{MediaType: "*/*", Doc: "bytes of the log"},
	},
	{
		Method: "POST", Path: claimPath + "/fail", Role: role.Work, Tag: tagWork, Limited: true, Status: 204,
		Summary: "End the attempt of a claimed task with an error", Body: failure{},
	},
	{
		Method: "POST", Path: claimPath + "/release", Role: role.Work, Tag: tagWork, Limited: true, Status: 204,
		Summary: "Give a claimed task back: the attempt does not count",
	},
}
