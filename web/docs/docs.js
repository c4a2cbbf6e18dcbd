// Shows the server's OpenAPI document, or that of the program ?program=NAME, in the colours that the system prefers.

const dark = matchMedia('(prefers-color-scheme: dark)');
const colours = () => document.documentElement.classList.toggle('dark-mode', dark.matches);
colours();
dark.addEventListener('change', colours);

const program = new URLSearchParams(location.search).get('program');

SwaggerUIBundle({
  url: program ? `../apps/${encodeURIComponent(program)}/openapi.json` : '../openapi.json',
  dom_id: '#docs',
  deepLinking: true,
  docExpansion: 'none',
  defaultModelsExpandDepth: 0,
  filter: true,
  validatorUrl: null, // nothing leaves this machine
});
